"""Every mistake that a newcomer makes is found before any traffic, and named with its fix.

One table of mistakes: each is made in a copy of a pair of parties that would otherwise run all
stages. `florist-party` must end with exit code 2 without contacting the peer or charging the
privacy ledger, and `florist preflight` must report the same problem, once.
"""

from __future__ import annotations

import csv
import logging
import socket
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from florist.api.party import ROLES
from florist.api.preflight import PartyChecks, preflight
from florist.cli.party import run
from florist.common.core.progress import NoProgress
from florist.common.privacy.ledger import open_ledger
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.transport.certificates import create_authority, issue
from tests.support.parties import NAMES, QuickClicks, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.api.preflight import Check
    from florist.common.core.roles import RoleName

    Rows = list[dict[str, str]]
    Change = Callable[["Mistake", Workspace], None]


@dataclass(frozen=True)
class Mistake:
    """One mistake, and what the message must contain."""

    title: str
    role: RoleName
    make: Change
    #: Parts of the message: the key, or the file and the column; and the fix.
    expected: tuple[str, ...]
    #: The option --role, if it is given.
    option: RoleName | None = None
    #: The last check of `preflight` that is needed to find it; later ones take seconds.
    found_by: str = "training"


# --- how mistakes are made ---


def settings(**changes: object) -> Change:
    """Set keys, whose dots are written as two underscores."""
    return lambda mistake, pair: pair.configure(
        mistake.role, {key.replace("__", "."): value for key, value in changes.items()}
    )


def both(*changes: Change) -> Change:
    def make(mistake: Mistake, pair: Workspace) -> None:
        for change in changes:
            change(mistake, pair)

    return make


def table(edit: Callable[[Rows], Rows], kind: str = "") -> Change:
    """Edit the training table, or the one of this kind: `-test` or `-evaluation`."""

    def make(mistake: Mistake, pair: Workspace) -> None:
        path = path_of(mistake, pair, kind)
        with path.open(newline="") as file:
            rows = edit(list(csv.DictReader(file)))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)

    return make


def path_of(mistake: Mistake, pair: Workspace, kind: str = "") -> Path:
    return pair.directory / "data" / f"{NAMES[mistake.role]}{kind}.csv"


def with_values(column: str, value: Callable[[int, str], str]) -> Callable[[Rows], Rows]:
    """Change the values of a column by row number and value."""
    return lambda rows: [
        row | {column: value(number, row[column])} for number, row in enumerate(rows)
    ]


def without(column: str) -> Callable[[Rows], Rows]:
    return lambda rows: [
        {name: value for name, value in row.items() if name != column} for row in rows
    ]


def remove(kind: str) -> Change:
    return lambda mistake, pair: path_of(mistake, pair, kind).unlink()


def block_run_directory(mistake: Mistake, pair: Workspace) -> None:
    (pair.directory / "a-file").write_text("")
    pair.configure(mistake.role, {"run_directory": "a-file/run"})


def let_certificates_expire(mistake: Mistake, pair: Workspace) -> None:
    folder, past = pair.directory / "certificates", datetime.now(UTC) - timedelta(days=100)
    authority = create_authority(folder, "FLORIST trial", 1000, force=True, now=past)
    issue(authority, NAMES[mistake.role], {"127.0.0.1"}, folder, 10, force=True, now=past)


A: RoleName = "active"
P: RoleName = "passive"
MISTAKES = (
    # the role
    Mistake(
        "another role is given",
        A,
        settings(),
        ("--role passive contradicts role: active", "omit --role", "file of the passive party"),
        option=P,
    ),
    Mistake(
        "the active party's file without its role, as the passive party",
        A,
        settings(role=None),
        (
            "data.train.label: is 'click'",
            "passive party, which has no labels",
            "file of the active",
        ),
        option=P,
    ),
    Mistake(
        "the passive party's file without its role, as the active party",
        P,
        settings(role=None),
        ("data.train.label: missing", "{table}", "file of the other role"),
        option=A,
    ),
    Mistake(
        "an active party without a label",
        A,
        settings(data__train__label=None),
        ("data.train.label: missing", "name their column in {table}"),
    ),
    # labels
    Mistake(
        "no such label column",
        A,
        settings(data__train__label="clicked"),
        ("{table}", "'clicked'", "'click'"),
    ),
    Mistake(
        "three labels",
        A,
        table(with_values("click", lambda row, _: str(row % 3))),
        ("{table}, column 'click'", "3 classes", "set classes: 3 at both parties"),
    ),
    Mistake(
        "a continuous label",
        A,
        table(with_values("click", lambda row, _: f"{row / 7:.3f}")),
        ("{table}, column 'click'", "regression, which is not supported", "divide it into classes"),
    ),
    Mistake(
        "text labels",
        A,
        table(with_values("click", lambda _, value: "yes" if value == "1" else "no")),
        ("{table}, column 'click'", "set `positive_label`", 'positive_label: "yes"'),
    ),
    Mistake(
        "a positive label that does not occur",
        A,
        settings(data__train__positive_label="2"),
        ("{table}, column 'click'", "no label is '2'", "correct `positive_label`"),
    ),
    Mistake(
        "missing labels",
        A,
        table(with_values("click", lambda row, value: "" if row < 3 else value)),
        ("{table}, column 'click'", "labels are missing in 3", "remove the rows"),
    ),
    Mistake(
        "one class only",
        A,
        table(with_values("click", lambda *_: "0")),
        ("{table}, column 'click'", "is '0' in every row", "rows of different classes"),
    ),
    Mistake(
        "more classes agreed than there are",
        A,
        settings(
            agreement__training__classes=3, agreement__training__class_names=["no", "yes", "?"]
        ),
        ("{table}, column 'click'", "the classes of the model are", "correct or remove"),
    ),
    # features
    Mistake(
        "no such feature column",
        P,
        settings(data__train__numeric=["I1", "age"]),
        ("{table}", "'age'"),
    ),
    Mistake(
        "text in a numeric column",
        P,
        both(
            settings(data__train__numeric=["I1"]),
            table(with_values("I1", lambda row, value: "?" if row == 5 else value)),
        ),
        ("{table}, column 'I1'", "'?'", "na_values"),
    ),
    Mistake(
        "dates in another format",
        P,
        both(
            settings(data__train__dates=["C1"]),
            table(with_values("C1", lambda *_: "31.12.2024")),
        ),
        ("{table}, column 'C1'", "date_format"),
    ),
    Mistake(
        "a passive party without features",
        P,
        settings(data__train__numeric=[], data__train__categorical=[], data__train__dates=[]),
        ("data.train: the passive party needs features", "name columns"),
    ),
    # IDs
    Mistake(
        "repeated IDs",
        P,
        table(lambda rows: [*rows, rows[0], rows[1]]),
        ("{table}, column 'person'", "IDs that occur more than once: 2", "keep one row per ID"),
    ),
    Mistake(
        "empty IDs",
        A,
        table(with_values("person", lambda row, value: "" if row == 4 else value)),
        ("{table}, column 'person'", "missing or empty IDs: 1", "row 5", "remove the rows"),
    ),
    Mistake(
        "no such ID column",
        A,
        settings(data__train__id_column="id"),
        ("{table}", "'id'", "'person'"),
    ),
    Mistake("no such table", P, remove(""), ("{table}",)),
    # the test table
    Mistake("no such test table", P, remove("-test"), ("{table-test}",)),
    Mistake(
        "an agreed test table that is not configured",
        A,
        settings(data__test=None),
        ("data.test: missing", "agreement.training.test_table"),
    ),
    Mistake(
        "a test table without a column",
        P,
        table(without("C7"), "-test"),
        ("{table-test}", "'C7'"),
    ),
    Mistake(
        "a test table without a class",
        A,
        table(lambda rows: [row for row in rows if row["click"] == "0"], "-test"),
        ("{table-test}, column 'click'", "'0' in every row"),
    ),
    Mistake(
        "a test table with repeated IDs",
        P,
        table(lambda rows: [*rows, rows[0]], "-test"),
        ("{table-test}, column 'person'", "more than once: 1", "keep one row per ID"),
    ),
    Mistake(
        "dummies with a test table",
        P,
        settings(alignment__dummies=10),
        ("alignment.dummies", "set it to 0"),
    ),
    # the evaluation table
    Mistake("no such evaluation table", A, remove("-evaluation"), ("{table-evaluation}",)),
    Mistake(
        "an agreed evaluation table that is not configured",
        P,
        settings(data__evaluation=None),
        ("data.evaluation: missing", "agreement.evaluation.table"),
    ),
    Mistake(
        "an evaluation table without a column",
        P,
        table(without("I3"), "-evaluation"),
        ("{table-evaluation}", "'I3'"),
    ),
    Mistake(
        "an evaluation table with another label",
        A,
        table(with_values("click", lambda row, value: "2" if row == 0 else value), "-evaluation"),
        ("{table-evaluation}, column 'click'", "'2'", "the classes of the model are"),
    ),
    Mistake(
        "an evaluation table with one row of a class",
        A,
        table(with_values("click", lambda row, _: "1" if row == 0 else "0"), "-evaluation"),
        ("data.evaluation", "at least two rows of each class", "add rows"),
    ),
    Mistake(
        "an evaluation table that is too small",
        P,
        table(lambda rows: rows[:20], "-evaluation"),
        ("data.evaluation: 20 rows are too few", "add rows"),
    ),
    Mistake(
        "synthetic features that rule out an evaluation",
        P,
        settings(
            agreement__training__features__strategy="fea-random",
            agreement__training__stand_ins="plain",
        ),
        ("agreement.training.features.strategy", "train with fea-sampling"),
    ),
    # settings
    Mistake(
        "a batch larger than the tables",
        A,
        settings(agreement__training__batch_size=4096),
        ("agreement.training.batch_size: 4,096", "{table}", "set it to auto"),
    ),
    Mistake(
        "a message that is too large",
        P,
        settings(agreement__training__micro_batch=100_000, agreement__training__batch_size=400),
        ("agreement.training.micro_batch: at most",),
    ),
    Mistake(
        "a GPU that is not there",
        P,
        settings(training__device="mps"),
        ("training.device: mps is not available", "use auto"),
    ),
    Mistake(
        "a run directory that cannot be written",
        P,
        block_run_directory,
        ("run_directory", "a-file/run", "cannot be written"),
        found_by="run directory",
    ),
    Mistake(
        "a budget that suffices for the alignment only",
        A,
        settings(privacy__budget={"epsilon": 20.0, "delta": 0.1}),
        ("privacy.budget",),
        found_by="privacy ledger",
    ),
    Mistake(
        "expired certificates",
        P,
        let_certificates_expire,
        ("certificates/telco.pem: expired on", "get a new certificate", "this machine's clock"),
        found_by="certificates",
    ),
)


# --- what happens ---


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Parties without a mistake, which do not tell each other of mistakes."""
    return Workspace.create(tmp_path_factory.mktemp("pair") / "files", QuickClicks(people=600))


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """A listener in place of the peer, which must not be called."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(0)
        yield listener


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.title for mistake in MISTAKES])
def test_a_mistake_is_found_before_any_traffic(
    mistake: Mistake,
    pair: Workspace,
    tmp_path: Path,
    trap: socket.socket,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copy = pair.copy(tmp_path / "files")
    copy.configure(mistake.role, {"network.address": f"127.0.0.1:{trap.getsockname()[1]}"})
    mistake.make(mistake, copy)
    file = copy.config(mistake.role)

    with caplog.at_level(logging.INFO, "florist"):
        assert run(mistake.option, "all", file, StageOptions(), NoProgress()) == 2
    (message,) = (
        record.getMessage() for record in caplog.records if getattr(record, "exit_code", 0)
    )
    expected = [
        part.replace("{table", f"{path_of(mistake, copy)}"[: -len(".csv")]).replace("}", ".csv")
        if "{table" in part
        else part
        for part in mistake.expected
    ]
    assert [part for part in expected if part not in message] == [], message
    assert not any("listening" in record.getMessage() for record in caplog.records)
    with pytest.raises(BlockingIOError):
        trap.accept()
    if mistake.title != "a run directory that cannot be written":
        with open_ledger(load_config(file)) as ledger:
            assert not ledger.charges

    checks = list(checks_of(mistake, file))
    problems = [check for check in checks if not (check.passed or check.skipped)]
    assert [check.message for check in problems] == [message]


def checks_of(mistake: Mistake, file: Path) -> Iterator[Check]:
    """The results of `preflight`, as far as they are needed."""
    config = load_config(file)
    if mistake.option is not None and config.role is not None:
        yield from preflight(file, role=mistake.option)
        return
    role = None if mistake.option is None else ROLES[mistake.option]
    for check in PartyChecks(config, role).run():
        yield check
        if check.name == mistake.found_by:
            return


def test_the_same_parties_have_no_problem_without_a_mistake(pair: Workspace) -> None:
    for role in (A, P):
        checks = PartyChecks(load_config(pair.config(role))).run()
        assert all(
            check.passed for check in takewhile(lambda check: check.name != "engine", checks)
        )
