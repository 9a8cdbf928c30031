"""The evaluate stage: its results, how it resumes, and what it refuses.

Unless a test is about processes, both parties run in threads over an in-memory link.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from florist.active_party.role import ACTIVE
from florist.api.runs import load_run
from florist.cli.show import describe_run
from florist.cli.tool import app
from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import (
    FloristError,
    OverlapOutsideLimits,
    PeerFailed,
    PeerLost,
)
from florist.common.core.progress import NoProgress
from florist.common.core.text import FOR_OWNER
from florist.common.data.labels import read_labels
from florist.common.data.table_reader import read_whole_table
from florist.common.evaluation import metrics
from florist.common.evaluation.evaluation_journal import (
    DifferentEvaluation,
    EvaluationJournal,
    EvaluationNotReproducible,
)
from florist.common.privacy.ledger import charges, ledger_folder
from florist.common.privacy.ledger_file import read_ledger
from florist.common.session.answer_journal import JournalLost
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages import evaluate as evaluate_stage
from florist.common.stages.outdated import outdated_results
from florist.common.stages.run_stages import run_stage
from florist.common.stages.stage_table import incomplete_stages
from florist.common.training.row_codec import RowCodec
from florist.common.transport.channel import CONTROL
from florist.common.transport.codec import encode
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    BundleOffer,
    EvaluationEmbeddingBlock,
    EvaluationOpening,
    EvaluationSummary,
    SetChunk,
)
from florist.common.transport.recording import RecordingLink
from florist.experiments import click_data
from florist.experiments.sample_data import evaluation_path
from florist.passive_party.role import PASSIVE
from tests.support.in_process import RoleOverLink, RoleWithoutPeer
from tests.support.parties import other
from tests.support.serving import OWN, QuickModel, SharedColumns, train_pair
from tests.support.tables import read_ids
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.common.bundle.bundle import Bundle
    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.data.raw_table import RawTable
    from florist.common.evaluation.worth import Evaluated, Worth
    from florist.common.privacy.ledger_entries import Charge
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.parties import Workspace
    from tests.support.tampering import Tamper

ROLES: tuple[RoleName, RoleName] = ("active", "passive")
BOTH = {"active": ACTIVE, "passive": PASSIVE}


@dataclass(frozen=True)
class EvaluatedModel(QuickModel):
    """Sample data with as many evaluation people as training people."""

    evaluation_fraction: float = 1.0


@dataclass(frozen=True)
class OwnColumns(SharedColumns):
    """Sample data in which the active party has features, also of the evaluation people."""

    def write(self, active: Path, passive: Path) -> None:
        SharedColumns.write(self, active, passive)
        rest = [c for c in (*click_data.NUMERIC, *click_data.CATEGORICAL) if c not in OWN]
        data, whose = self.evaluation_data()
        ours = click_data.active_table(data, whose["active"], OWN)
        theirs = click_data.passive_table(data, whose["passive"], rest)
        click_data.write_table(ours, evaluation_path(active))
        click_data.write_table(theirs, evaluation_path(passive))


@dataclass(frozen=True)
class MadeUp(QuickModel):
    """A model trained with random embeddings for people that the passive party lacks."""

    def settings(self, role: RoleName) -> dict[str, Any]:
        return QuickModel.settings(self, role) | {
            "agreement.training.features.strategy": "fea-random",
            "agreement.training.stand_ins": "plain",
        }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return train_pair(tmp_path_factory.mktemp("pair") / "trained", EvaluatedModel())


@pytest.fixture
def workspace(trained: Workspace, tmp_path: Path) -> Workspace:
    return trained.copy(tmp_path / "copy")


@pytest.fixture(autouse=True)
def _plain_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip reports, since plots take longer than everything else; separate processes draw them."""
    monkeypatch.setattr(evaluate_stage, "render", lambda _: "")


# --- both parties in this process ---


def alone(workspace: Workspace, role: RoleName, *, force: bool = False) -> FloristError:
    """Return the error of a party that fails before it connects to its peer."""
    with pytest.raises(FloristError) as end:
        run_stage(
            "evaluate",
            RoleWithoutPeer(BOTH[role]),
            load_config(workspace.config(role)),
            StageOptions(force=force),
            NoProgress(),
        )
    return end.value


@dataclass(frozen=True)
class Run:
    """How both parties ended, and the messages that each recorded."""

    ends: dict[RoleName, FloristError | None]
    links: dict[RoleName, RecordingLink]

    @property
    def channels(self) -> set[str]:
        return {record.channel for link in self.links.values() for record in link.records}

    @property
    def kinds(self) -> set[type]:
        records = (record for link in self.links.values() for record in link.records)
        return {type(record.message) for record in records if record.channel != CONTROL}


def run(
    workspace: Workspace, *, tamper: dict[RoleName, Tamper] | None = None, force: bool = False
) -> Run:
    plain: dict[RoleName, Link] = dict(zip(ROLES, linked_pair(), strict=True))
    for role, change in (tamper or {}).items():
        plain[role] = TamperingLink(plain[role], change)
    links = {role: RecordingLink(link) for role, link in plain.items()}

    def end(role: RoleName) -> FloristError | None:
        side = RoleOverLink(BOTH[role], links[role])
        config = load_config(workspace.config(role))
        try:
            run_stage("evaluate", side, config, StageOptions(force=force), NoProgress())
        except FloristError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as both:
        ends = {role: both.submit(end, role) for role in ROLES}
        return Run({role: each.result(timeout=60) for role, each in ends.items()}, links)


def run_well(workspace: Workspace, *, force: bool = False) -> Run:
    done = run(workspace, force=force)
    assert done.ends == {"active": None, "passive": None}
    return done


def both_refuse(done: Run, words: str) -> None:
    for end in done.ends.values():
        assert end is not None
        assert end.exit_code == 2
        assert words in str(end)


def result(workspace: Workspace, role: RoleName) -> dict[str, Any]:
    path = workspace.run_directory(role).evaluation / "evaluation.json"
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def configure(workspace: Workspace, changes: dict[str, Any]) -> None:
    for role in ROLES:
        workspace.configure(role, changes)


def table(workspace: Workspace, role: RoleName) -> Path:
    found = load_config(workspace.config(role)).data.evaluation
    assert found is not None
    return found.path


def rewrite(path: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    """Change a table's rows, including the header."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("".join(",".join(row) + "\n" for row in change(rows)))


# --- results ---


def test_between_two_processes(workspace: Workspace) -> None:
    """A repeated evaluation is refused; forced, it gives the same figures for the same people."""
    with (
        workspace.start_warm("active", stage="evaluate") as active,
        workspace.start_warm("passive", stage="evaluate") as passive,
    ):
        assert (active.finish(), passive.finish()) == (0, 0)
    ours, theirs = (result(workspace, role) for role in ROLES)
    assert ours["estimates"] == theirs["estimates"]
    assert 0 < ours["estimates"]["auc"]["standard_error"] < 0.5
    assert ours["run"] == theirs["run"]
    # A third of the passive party's 640 rows are reserved. Its padding needs 12 of them (6 for the
    # private counts, 6 for planted pairs), noise up to 2, and the active party's padding 6.
    assert 193 <= ours["scored"] <= 195
    assert 2 <= ours["sizes"]["own"] - ours["scored"] <= 6
    assert ours["privacy"] == {"epsilon": 10.0, "delta": 1e-3}
    assert len(ours["curve"]) == 15
    assert theirs["curve"] is None
    assert "too imprecise" in ours["warning"]
    assert "WARNING the estimate is too imprecise" in active.output
    for role in ROLES:
        page = (workspace.run_directory(role).evaluation / "report.html").read_text()
        assert "Estimates" in page
        assert "Was it worth it?" in page
        assert ("Calibration" in page) == (role == "active")
    shown = CliRunner().invoke(app, ["show", str(workspace.run_directory("active").path)])
    assert shown.exit_code == 0
    assert "without knowing who is shared" in " ".join(shown.output.split())
    assert f"{ours['estimates']['auc']['value']:.4f}" in shown.output
    assert_worth_without_own_features(workspace, shown.output)

    before = ranks(workspace)
    for role in ROLES:
        assert "--force" in str(alone(workspace, role))
    done = run_well(workspace, force=True)
    assert result(workspace, "active")["estimates"] == ours["estimates"]
    assert ranks(workspace) == before
    assert SetChunk not in done.kinds


def assert_worth_without_own_features(workspace: Workspace, shown: str) -> None:
    """The baseline is the base rate, and the passive party knows which columns matter."""
    ours, theirs = (result(workspace, role)["worth"] for role in ROLES)
    estimate = result(workspace, "active")["estimates"]["auc"]
    comparison = ours["comparison"]
    assert comparison["baseline"]["auc"]["value"] == 0.5
    assert comparison["columns"] == 0
    assert comparison["rows"] == len(read_ids(workspace.table("active"), "person", "strip"))
    assert comparison["gain"]["auc"]["value"] == pytest.approx(estimate["value"] - 0.5)
    assert ours["importance"] is None
    assert ours["missing"] == ["There are no own columns whose importance could be measured."]
    assert "own data alone" in shown
    assert theirs["comparison"] is None
    assert theirs["importance"]["unit"] == "share"
    names = {each["column"] for each in theirs["importance"]["columns"]}
    assert names == {*click_data.NUMERIC, *click_data.CATEGORICAL}
    run = load_run(workspace.run_directory("passive").path)
    assert run.worth is not None
    assert not run.worth.gain
    assert len(run.worth.importance) == len(names)
    assert run.worth.importance[0].value >= run.worth.importance[1].value


def ranks(workspace: Workspace) -> dict[RoleName, bytes]:
    return {
        role: (workspace.run_directory(role).evaluation_alignment / "ranks.parquet").read_bytes()
        for role in ROLES
    }


def test_only_protocol_messages_are_sent(workspace: Workspace) -> None:
    done = run_well(workspace)
    everyone = [
        identifier
        for role in ROLES
        for identifier in read_ids(table(workspace, role), "person", "strip")
    ]
    for link in done.links.values():
        sent = b"".join(encode(record.message) for record in link.records)  # type: ignore[arg-type]
        assert not any(identifier in sent for identifier in everyone)
    assert {kind.__name__ for kind in done.kinds} == {
        "EvidenceContribution",
        "EvidenceSignature",
        "BundleOffer",
        "EvaluationOpening",
        "UnionOpening",
        "UnionTerms",
        "NonceReveal",
        "UnionAnnouncement",
        "SetHeader",
        "SetChunk",
        "UnionDigest",
        "EvaluationEmbeddingBlock",
        "EvaluationSummary",
    }


def test_the_result_contains_neither_ids_nor_secrets(workspace: Workspace) -> None:
    run_well(workspace)
    for role in ROLES:
        runs = workspace.run_directory(role)
        key = runs.evaluation_alignment / "draws.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(runs.evaluation_alignment.stat().st_mode) == 0o700
        secret = key.read_bytes()
        others = [p for p in runs.path.rglob("*") if p.is_file() and p != key]
        for path in others:
            content = path.read_bytes()
            assert secret not in content
            assert secret.hex().encode() not in content
        for path in (*runs.evaluation.iterdir(), *runs.evaluation_alignment.iterdir()):
            assert b"p2-0" not in path.read_bytes()


def test_rows_kept_out_of_the_union_are_marked(workspace: Workspace) -> None:
    run_well(workspace)
    scored = result(workspace, "active")["scored"]
    for role, kept_out in zip(ROLES, (320 - scored, scored + 6 + 12), strict=True):
        union = workspace.run_directory(role).load_evaluation_union()
        assert union is not None
        assert (union.alignment.rank_of_row == -1).sum() == kept_out


def test_dummies_are_not_counted_as_people(workspace: Workspace) -> None:
    configure(workspace, {"alignment.dummies": 9})
    run_well(workspace)
    ours = result(workspace, "active")
    # The passive party announces a power of two, which leaves 128 - 9 - 6 people.
    assert ours["scored"] == 113
    assert 9 + 2 <= ours["sizes"]["own"] - 113 <= 9 + 6
    assert ours["sizes"]["shared_estimate"] <= 113 + 2


def test_repeated_stand_ins_score_everybody(workspace: Workspace) -> None:
    configure(workspace, {"agreement.evaluation.stand_ins": "repeated"})
    run_well(workspace)
    ours = result(workspace, "active")
    assert ours["scored"] == 320
    assert 2 <= ours["sizes"]["own"] - 320 <= 6
    assert 2 <= ours["sizes"]["peer"] - 640 <= 6


def test_the_passive_party_may_learn_nothing(workspace: Workspace) -> None:
    configure(workspace, {"agreement.evaluation.passive_learns": "nothing"})
    run_well(workspace)
    assert result(workspace, "active")["estimates"] is not None
    assert result(workspace, "passive")["estimates"] is None
    shown = CliRunner().invoke(app, ["show", str(workspace.run_directory("passive").path)])
    assert "only the active party gets" in " ".join(shown.output.split())


def test_own_features(tmp_path: Path) -> None:
    workspace = train_pair(tmp_path / "own", OwnColumns())
    assert load_bundle(workspace.run_directory("active"), "active").has_features
    run_well(workspace)
    estimates = result(workspace, "active")["estimates"]
    assert estimates == result(workspace, "passive")["estimates"]
    assert 0 < estimates["auc"]["standard_error"] < 0.5

    first = result(workspace, "active")["worth"]
    comparison = first["comparison"]
    assert comparison["joint"]["auc"] == estimates["auc"]
    assert comparison["baseline"]["auc"]["value"] != 0.5
    assert comparison["gain"]["auc"]["value"] == pytest.approx(
        estimates["auc"]["value"] - comparison["baseline"]["auc"]["value"]
    )
    assert comparison["people"] == result(workspace, "active")["scored"]
    assert {each["column"] for each in first["importance"]["columns"]} == set(OWN)
    assert first["importance"]["peer"]["standard_error"] > 0
    run = load_run(workspace.run_directory("active").path)
    assert run.worth is not None
    assert [each.metric for each in run.worth.gain] == ["auc", "log_loss"]
    assert run.worth.peer_importance is not None
    out = Console(record=True, width=120)
    describe_run(run, out)
    text = out.export_text()
    assert f"{comparison['gain']['auc']['value']:+.4f}" in text
    assert "drop in AUC" in text

    # Nothing of it depends on chance or on the peer, and it can be off.
    run_well(workspace, force=True)
    assert result(workspace, "active")["worth"] == first
    configure(workspace, {"training.worth": False})
    run_well(workspace, force=True)
    assert result(workspace, "active")["worth"] is None
    assert load_run(workspace.run_directory("active").path).worth is None


def test_a_training_table_that_changed_leaves_out_the_baseline(workspace: Workspace) -> None:
    """The evaluation itself does not need it."""
    rewrite(workspace.table("active"), lambda rows: rows[:-1])
    run_well(workspace)
    ours = result(workspace, "active")
    assert ours["estimates"] is not None
    assert ours["worth"]["comparison"] is None
    assert "data.train: has other IDs" in ours["worth"]["missing"][0]
    workspace.table("active").unlink()
    run_well(workspace, force=True)
    assert "no baseline" in result(workspace, "active")["worth"]["missing"][0]


@dataclass(frozen=True)
class OnlyTestTable(SharedColumns):
    """Both parties list the test people, and there is no evaluation."""

    def settings(self, role: RoleName) -> dict[str, Any]:
        return SharedColumns.settings(self, role) | {"agreement.evaluation.table": False}


def test_without_an_evaluation_the_training_report_has_the_comparison(tmp_path: Path) -> None:
    workspace = train_pair(tmp_path / "tested", OnlyTestTable())
    for role in ROLES:
        runs = workspace.run_directory(role)
        assert "Was it worth it?" in (runs.training / "report.html").read_text()
        found = load_run(runs.path)
        assert found.evaluation is None
        assert found.worth is not None
        assert stat.S_IMODE((runs.training / "worth.json").stat().st_mode) == 0o600
        if role == "passive":
            assert found.worth.importance
            assert not found.worth.gain
            continue
        (joint, _), (alone, _), (gain, _) = (
            found.worth.joint,
            found.worth.baseline,
            found.worth.gain,
        )
        assert joint.value == pytest.approx(found.metrics["auc"])
        assert gain.value == pytest.approx(joint.value - alone.value)
        assert gain.low < gain.value < gain.high
        assert found.worth.baseline_columns == len(OWN)
        assert found.worth.baseline_rows == found.sizes.rows


class AfterSession(RoleOverLink):
    """Records whether the session was over when the worth of the model was computed."""

    def __init__(self, inner: Role, link: Link) -> None:
        super().__init__(inner, link)
        self.is_connected = False
        self.was_connected: list[bool] = []

    @contextmanager
    def connect(self, *given: object) -> Iterator[Link]:
        with super().connect(*given) as link:
            self.is_connected = True
            yield link
        self.is_connected = False

    def evaluate(self, *given: Any) -> Evaluated:  # noqa: ANN401
        evaluated = super().evaluate(*given)

        def worth(config: PartyConfig, progress: Progress) -> Worth:
            self.was_connected.append(self.is_connected)
            return evaluated.worth(config, progress)

        return replace(evaluated, worth=worth)


def test_the_comparison_begins_after_the_session(workspace: Workspace) -> None:
    """So the peer neither waits for it nor sees how long it takes."""
    links = dict(zip(ROLES, linked_pair(), strict=True))
    roles = {role: AfterSession(BOTH[role], links[role]) for role in ROLES}

    def end(role: RoleName) -> None:
        config = load_config(workspace.config(role))
        run_stage("evaluate", roles[role], config, StageOptions(), NoProgress())

    with ThreadPoolExecutor(2) as both:
        for ended in [both.submit(end, role) for role in ROLES]:
            ended.result(timeout=60)
    assert all(role.was_connected == [False] for role in roles.values())


def test_people_of_the_training_table_cause_a_warning(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    known = workspace.table("active").read_text().splitlines()[1:11]
    with table(workspace, "active").open("a") as file:
        file.write("\n".join(known) + "\n")
    evaluate_stage.log.propagate = True
    with caplog.at_level("WARNING", logger="florist"):
        run_well(workspace)
    assert "people in our evaluation table are in our training table too" in caplog.text
    # How many is for the owner's terminal only.
    (warning,) = (record for record in caplog.records if "too optimistic" in record.message)
    assert vars(warning)[FOR_OWNER] == "10 of 330"


def test_bundles_predict_like_the_finished_run(trained: Workspace) -> None:
    active = load_bundle(trained.run_directory("active"), "active")
    passive = load_bundle(trained.run_directory("passive"), "passive")

    def read(role: RoleName, bundle: Bundle) -> RawTable:
        table = load_config(trained.config(role)).data.test_table
        assert table is not None
        return read_whole_table(table, "strip", features=bundle.preprocessing.features)

    ours, theirs = read("active", active), read("passive", passive)
    embeddings = passive.embed(passive.preprocessing.transform(theirs))
    place = {identifier: row for row, identifier in enumerate(theirs.ids)}
    order = torch.tensor([place[identifier] for identifier in ours.ids])
    labels = read_labels(ours, names=active.class_names).classes
    found = metrics.evaluate(labels, active.predict(embeddings[order]).numpy())
    last = trained.run_directory("active").load_history()["epochs"][-1]
    assert found.log_loss == pytest.approx(last["log_loss"], abs=1e-6)
    # Batches of other sizes round differently, so nearly equal predictions can change their order.
    pairs = int(labels.sum()) * int(len(labels) - labels.sum())
    assert found.auc == pytest.approx(last["auc"], abs=3 / pairs)
    if found.auc == pytest.approx(last["auc"], abs=1e-9):
        assert found.ace == pytest.approx(last["ace"], abs=1e-6)


# --- resumed ---


def test_an_interrupted_evaluation_reuses_its_union(workspace: Workspace) -> None:
    """The state is that after a stop between alignment and evaluation."""
    run_well(workspace)
    first, kept = result(workspace, "active"), ranks(workspace)
    for role in ROLES:
        shutil.rmtree(workspace.run_directory(role).evaluation)
    done = run_well(workspace)
    assert SetChunk not in done.kinds
    assert ranks(workspace) == kept
    assert result(workspace, "active")["estimates"] == first["estimates"]


def assert_outdated(config: PartyConfig) -> None:
    """The evaluation is not shown beside another model, and is repeated by a run of all stages."""
    found = load_run(config.run_directory)
    assert found.evaluation is None
    assert found.evaluation_is_outdated
    assert [report.parent.name for report in found.reports] == ["training"]
    assert incomplete_stages(config) == ["evaluate"]


def test_another_model_is_evaluated_on_the_same_people(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    run_well(workspace)
    first, kept = result(workspace, "active"), ranks(workspace)
    shown = capsys.readouterr
    retrain(workspace)
    for role in ROLES:
        config = load_config(workspace.config(role))
        assert_outdated(config)
        describe_run(load_run(config.run_directory), Console(width=200))
        assert "belongs to an earlier model" in (text := shown().out)
        assert "estimated without knowing" not in text
    done = run_well(workspace)  # without --force
    assert not load_run(workspace.run_directory("active").path).evaluation_is_outdated
    assert len(load_run(workspace.run_directory("active").path).reports) == 2
    assert SetChunk not in done.kinds
    assert ranks(workspace) == kept
    again = result(workspace, "active")
    assert again["run"] == first["run"]  # the seeds are fixed, the settings are not
    assert again["estimates"] != first["estimates"]


@pytest.mark.parametrize("forgetful", ROLES)
def test_one_sided_unions_are_refused_by_both(workspace: Workspace, forgetful: RoleName) -> None:
    run_well(workspace)
    shutil.rmtree(workspace.run_directory(forgetful).evaluation_alignment)
    done = run(workspace, force=True)
    both_refuse(done, "do not hold the same alignment")
    assert done.kinds == {BundleOffer, EvaluationOpening}
    assert all(workspace.run_directory(role).evaluation.exists() for role in ROLES)


# --- the same answer only ---


def one_person_changed(message: Message) -> list[Message]:
    """Change the embedding of the first person, as a passive party that looks for an effect."""
    if isinstance(message, EvaluationEmbeddingBlock) and message.start == 0:
        values = np.frombuffer(message.values, np.float32).copy()
        values[:8] += 1
        return [replace(message, values=values.tobytes())]
    return [message]


def test_other_embeddings_for_the_same_people_are_not_answered(workspace: Workspace) -> None:
    """If they were, a summary that changes would show that the active party has the person."""
    run_well(workspace)
    first = result(workspace, "active")
    for _ in range(2):
        done = run(workspace, tamper={"passive": one_person_changed}, force=True)
        ours, theirs = done.ends["active"], done.ends["passive"]
        assert isinstance(ours, DifferentEvaluation)
        assert ours.exit_code == 4
        assert "row 0: the peer sent other embeddings in an earlier evaluation" in str(ours)
        assert isinstance(theirs, PeerFailed)
        assert "this party sent other embeddings" in str(theirs)
        assert EvaluationSummary not in done.kinds
    run_well(workspace, force=True)
    assert result(workspace, "active")["estimates"] == first["estimates"]


def test_embeddings_of_an_interrupted_evaluation_are_remembered(workspace: Workspace) -> None:
    """The connection was lost before the summary was sent."""

    def lost(message: Message) -> list[Message]:
        if isinstance(message, EvaluationSummary):
            raise PeerLost("the test")
        return [message]

    assert isinstance(run(workspace, tamper={"active": lost}).ends["active"], PeerLost)
    done = run(workspace, tamper={"passive": one_person_changed})
    assert isinstance(done.ends["active"], DifferentEvaluation)
    run_well(workspace)


def test_changed_features_are_not_sent_for_the_same_people(workspace: Workspace) -> None:
    """Nothing that the active party sends changes the embeddings; a changed table would."""
    run_well(workspace)

    def change(rows: list[list[str]]) -> list[list[str]]:
        place = rows[0].index('"I1"')
        return [rows[0], *([*row[:place], "77", *row[place + 1 :]] for row in rows[1:])]

    rewrite(table(workspace, "passive"), change)
    refused = alone(workspace, "passive", force=True)
    assert "data.evaluation: column 'I1' has changed since 20" in str(refused)
    assert "77" not in str(refused)
    shutil.rmtree(workspace.run_directory("passive").evaluation)  # with the record of the table
    done = run(workspace, force=True)
    assert isinstance(done.ends["passive"], EvaluationNotReproducible)
    assert "row 0: this party sent other embeddings" in str(done.ends["passive"])
    assert "row 0: it sent other embeddings" in str(done.ends["active"])
    assert EvaluationEmbeddingBlock not in done.kinds


def test_outdated_results_are_named_with_what_repeats_them(workspace: Workspace) -> None:
    run_well(workspace)
    config = load_config(workspace.config("passive"))
    assert outdated_results(config) == []

    def change(rows: list[list[str]]) -> list[list[str]]:
        place = rows[0].index('"I2"')
        return [rows[0], *([*row[:place], "77", *row[place + 1 :]] for row in rows[1:])]

    os.utime(config.data.train.path)  # a touched table is read again, and is the same
    assert outdated_results(config) == []
    rewrite(config.data.train.path, change)
    workspace.configure("passive", {"optimiser.learning_rate": 0.5})
    (model,) = outdated_results(load_config(workspace.config("passive")))
    assert "optimiser.learning_rate was 0.002, now 0.5" in model
    assert "data.train: column 'I2' has changed since 20" in model
    assert "--stage train --force on both sides" in model
    rewrite(table(workspace, "passive"), change)
    _, evaluation = outdated_results(load_config(workspace.config("passive")))
    assert "the evaluation is outdated: data.evaluation: column 'I2' has changed" in evaluation
    rewrite(config.data.train.path, lambda rows: rows[:-1])
    model, _ = outdated_results(load_config(workspace.config("passive")))
    assert "data.train: its IDs are not the ones that were aligned" in model


def test_other_stand_ins_for_the_same_people_are_refused(workspace: Workspace) -> None:
    run_well(workspace)
    configure(workspace, {"agreement.evaluation.stand_ins": "repeated"})
    for role in ROLES:
        end = alone(workspace, role, force=True)
        assert "agreement.evaluation.stand_ins: the evaluation tables were aligned for" in str(end)


def test_the_number_of_models_for_the_same_people_is_limited(workspace: Workspace) -> None:
    configure(workspace, {"agreement.evaluation.max_models": 1})
    run_well(workspace)
    retrain(workspace)
    done = run(workspace, force=True)
    assert EvaluationEmbeddingBlock not in done.kinds
    for end in done.ends.values():
        assert "agreement.evaluation.max_models" in str(end)
    configure(workspace, {"agreement.evaluation.max_models": 2})
    run_well(workspace, force=True)


@pytest.mark.parametrize("damage", ["missing", "damaged"])
@pytest.mark.parametrize("role", ROLES)
def test_a_lost_journal_is_refused(workspace: Workspace, role: RoleName, damage: str) -> None:
    run_well(workspace)
    journal = workspace.run_directory(role).evaluation_journal
    content = journal.read_bytes()
    if damage == "missing":
        journal.unlink()
    else:
        journal.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    done = run(workspace, force=True)
    assert isinstance(done.ends[role], JournalLost)
    assert f"answers.journal is {damage}" in str(done.ends[role])
    assert "missing or damaged" in str(done.ends[other(role)])
    assert EvaluationEmbeddingBlock not in done.kinds or role == "active"
    assert EvaluationSummary not in done.kinds


def _change_embeddings() -> None:
    """Modify the software of a passive party."""
    encode_rows = RowCodec.encode

    def encode_others(codec: RowCodec, rows: torch.Tensor) -> memoryview:
        return encode_rows(codec, rows + 1)

    RowCodec.encode = encode_others  # type: ignore[assignment,method-assign]
    EvaluationJournal.sent = lambda *_: None  # type: ignore[method-assign]


def test_a_replay_between_two_processes_is_refused(workspace: Workspace) -> None:
    """Over mutual TLS."""
    with (
        workspace.start_warm("active", stage="evaluate") as active,
        workspace.start_warm("passive", stage="evaluate") as passive,
    ):
        assert (active.finish(), passive.finish()) == (0, 0)
    with (
        workspace.start_warm("active", "--force", stage="evaluate") as active,
        workspace.start_warm(
            "passive", "--force", stage="evaluate", first=_change_embeddings
        ) as passive,
    ):
        assert (active.finish(), passive.finish()) == (4, 5)
    assert "the peer sent other embeddings in an earlier evaluation" in active.output
    assert "this party sent other embeddings in an earlier evaluation" in passive.output


# --- refused by both ---


@pytest.mark.parametrize("changed", ROLES)
def test_halves_of_different_runs(workspace: Workspace, tmp_path: Path, changed: RoleName) -> None:
    twin = workspace.copy(tmp_path / "twin")
    retrain(twin)
    for each in (workspace, twin):
        assert load_bundle(each.run_directory(changed), changed).role == changed
    shutil.rmtree(workspace.run_directory(changed).training)
    shutil.copytree(twin.run_directory(changed).training, workspace.run_directory(changed).training)
    done = run(workspace)
    both_refuse(done, "different training runs")
    assert done.kinds == {BundleOffer}
    assert not any(workspace.run_directory(role).evaluation.exists() for role in ROLES)


def test_nobody_in_common(workspace: Workspace) -> None:
    ours = {row.split(",")[0] for row in table(workspace, "active").read_text().splitlines()}
    rewrite(
        table(workspace, "passive"),
        lambda rows: [rows[0], *(row for row in rows[1:] if row[0] not in ours)],
    )
    done = run(workspace)
    both_refuse(done, "nobody in common")
    assert EvaluationEmbeddingBlock not in done.kinds


def test_an_overlap_outside_the_limits_stops_both(workspace: Workspace) -> None:
    """The union is kept, so that a run with other limits needs no new one."""
    for role in ROLES:
        workspace.configure(role, {"agreement.union.overlap.minimum": 1_000_000})
    ends = run(workspace).ends
    for end in ends.values():
        assert isinstance(end, OverlapOutsideLimits)
        assert "evaluation tables: about" in end.reason
    for role in ROLES:
        workspace.configure(role, {"agreement.union.overlap.minimum": 0})
        assert not workspace.run_directory(role).evaluation.exists()
    run_well(workspace)
    for role in ROLES:
        assert [charge.announced for charge in charged(workspace, role)] == ["people", "union"]


def test_a_kept_union_is_not_charged_again(workspace: Workspace) -> None:
    run_well(workspace)
    for role in ROLES:
        workspace.configure(role, {"privacy.budget": {"epsilon": 0.1, "delta": 1e-9}})
    run_well(workspace, force=True)
    for role in ROLES:
        assert len(charged(workspace, role)) == 2
        shutil.rmtree(workspace.run_directory(role).evaluation_alignment)
        assert "privacy.budget" in alone(workspace, role, force=True).reason


def charged(workspace: Workspace, role: RoleName) -> list[Charge]:
    """Return the charges for the evaluation table."""
    entries = read_ledger(ledger_folder(load_config(workspace.config(role))))[0].entries
    return [charge for charge in charges(entries) if charge.table == "evaluation"]


def test_different_agreements(workspace: Workspace) -> None:
    workspace.configure("passive", {"agreement.evaluation.stand_ins": "repeated"})
    both_refuse(run(workspace), "agreement.evaluation.stand_ins")


def retrain(workspace: Workspace) -> None:
    """Train other weights, with another learning rate."""
    configure(workspace, {"optimiser.learning_rate": 3e-3})

    def end(role: RoleName, link: Link) -> None:
        side = RoleOverLink(BOTH[role], link)
        run_stage(
            "train",
            side,
            load_config(workspace.config(role)),
            StageOptions(force=True),
            NoProgress(),
        )

    with ThreadPoolExecutor(2) as both:
        for done in [
            both.submit(end, role, link) for role, link in zip(ROLES, linked_pair(), strict=True)
        ]:
            done.result(timeout=60)


# --- refused before connecting ---


def without(path: Path, what: str) -> None:
    rewrite(path, lambda rows: [[*row] for row in _without(rows, what)])


def _without(rows: list[list[str]], what: str) -> list[list[str]]:
    match what:
        case "last row":
            return rows[:-1]
        case "last column":
            return [row[:-1] for row in rows]
        case "positives":
            place = rows[0].index('"click"')
            ones = [row for row in rows[1:] if row[place] == "1"]
            zeros = [row for row in rows[1:] if row[place] == "0"]
            return [rows[0], *ones[:1], *zeros]
        case _:
            return rows[:3]


@pytest.mark.parametrize(
    ("role", "settings", "what", "words"),
    [
        ("active", {"agreement.evaluation.table": False}, "", "agreement.evaluation.table"),
        ("passive", {"data.evaluation": None}, "", "data.evaluation: missing"),
        ("passive", {}, "last column", "C26"),
        ("active", {}, "last column", "click"),
        ("active", {}, "positives", "two rows of each class"),
        ("passive", {}, "most rows", "too few"),
        ("passive", {"compute.engine": "gmpy2"}, "", "no engine 'gmpy2'"),
        ("active", {"training.device": "mps"}, "", "training.device"),
    ],
)
def test_bad_input(
    workspace: Workspace, role: RoleName, settings: dict[str, Any], what: str, words: str
) -> None:
    path = table(workspace, role)
    workspace.configure(role, settings)
    if what:
        without(path, what)
    end = alone(workspace, role)
    assert end.exit_code == 2
    assert words in str(end)
    assert not workspace.run_directory(role).evaluation.exists()


@pytest.mark.parametrize("role", ROLES)
def test_evaluation_needs_a_trained_model(workspace: Workspace, role: RoleName) -> None:
    shutil.rmtree(workspace.run_directory(role).training)
    end = alone(workspace, role)
    assert end.exit_code == 2
    assert "--stage train" in str(end)


@pytest.mark.parametrize("role", ROLES)
def test_a_table_that_changed_since_it_was_aligned(workspace: Workspace, role: RoleName) -> None:
    run_well(workspace)
    without(table(workspace, role), "last row")
    end = alone(workspace, role, force=True)
    assert end.exit_code == 2
    assert "not the ones that were aligned" in str(end)
    assert "evaluation-alignment" in str(end)


def test_dependent_feature_strategies_are_refused_with_the_reason(tmp_path: Path) -> None:
    workspace = train_pair(tmp_path / "made-up", MadeUp())
    for role in ROLES:
        end = alone(workspace, role)
        assert end.exit_code == 2
        assert "trained with fea-random cannot be evaluated" in str(end)
        assert "distributed differently from those of real people" in str(end)
        assert "fea-sampling" in str(end)
