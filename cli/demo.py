"""`florist demo`: two parties as two processes on this machine, connected by mutual TLS."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, get_args

import numpy as np
from rich.console import Console
from rich.table import Table

from florist.api.audit import load_audit
from florist.api.runs import load_run
from florist.cli.audit import describe_audit
from florist.cli.init import Names, write_first_files
from florist.cli.party_processes import party_command, party_environment
from florist.cli.show import describe_training
from florist.common.core.errors import InternalError, PeerLost
from florist.common.core.interrupts import uninterrupted
from florist.common.core.ports import free_port
from florist.common.core.roles import RoleName
from florist.common.data.table_ids import IdReader
from florist.common.data.table_reader import read_whole_table
from florist.common.evaluation.metric_names import METRICS
from florist.common.reports.size_statements import estimate_text
from florist.common.session.alignment_result import Alignment
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.experiments.demo_baselines import Comparison, compare
from florist.experiments.sample_data import ClickSample
from florist.experiments.true_metrics import true_metrics

if TYPE_CHECKING:
    from florist.api.runs import RunResult
    from florist.common.evaluation.metrics import Scores
    from florist.common.session.union_sizes import UnionSizes

#: Seconds after which a party counts as stuck; the demo needs far fewer.
TIME_LIMIT = 900

NAMES = Names(active="bank", passive="telco")


def run_demo(directory: Path, sample: ClickSample, console: Console) -> None:
    """Set up two parties in `directory`, run both, and show what each one learned."""
    shutil.rmtree(directory, ignore_errors=True)
    console.rule("Two organisations, two processes, one model on the union of their people")
    address = f"127.0.0.1:{free_port()}"
    write_first_files(directory, NAMES, address, sample)
    _, who = sample.data()
    console.print(
        f"The {NAMES.active} has {len(who.active):,} people and knows who of them clicked. The "
        f"{NAMES.passive} has {len(who.passive):,} people and 39 columns about them. "
        f"{len(who.shared):,} people are in both tables, and neither party may learn who.\n"
        f"Files: {directory}. Each party is a process of its own; they connect by mutual TLS at "
        f"{address}.\n"
    )
    _run_both(directory, console)
    runs: dict[RoleName, RunDirectory] = {
        role: RunDirectory(load_config(directory / f"{role}.yml").run_directory)
        for role in get_args(RoleName)
    }
    active = load_run(runs["active"].path)
    _show_alignment(
        directory, runs["active"].load_alignment(), runs["passive"].load_alignment(), console
    )
    console.rule("The model")
    describe_training(active.history, runs["active"].training, console)
    console.print(
        "\nFor comparison, baselines on the same people, which only a simulation can have "
        "(takes half a minute) …"
    )
    _show_comparison(compare(directory, sample, runs["active"]), console)
    console.rule("What a curious peer could infer")
    for name, run in zip((NAMES.active, NAMES.passive), runs.values(), strict=True):
        console.print(f"The {name} attacked what it sent, as its peer could:")
        record = load_audit(run)
        describe_audit(record, record.last, console)
    console.rule("The quality of the model, estimated without knowing who is shared")
    _show_evaluation(active, true_metrics(runs, sample), console)
    console.rule("A served prediction")
    _show_served(directory, console)
    reports = (report for run in runs.values() for report in load_run(run.path).reports)
    console.print(f"Reports: {', '.join(map(str, reports))}")


def _run_both(directory: Path, console: Console) -> None:
    with ExitStack() as stack:
        parties = {role: _start(role, directory, console, stack) for role in ("active", "passive")}
        codes = {}
        for role, party in parties.items():
            try:
                codes[role] = party.wait(timeout=TIME_LIMIT)
            except subprocess.TimeoutExpired:
                raise PeerLost(f"the {role} party did not finish in {TIME_LIMIT} s") from None
    if any(codes.values()):
        raise InternalError(f"the demo's parties ended with exit codes {codes}")


def _start(
    role: str, directory: Path, console: Console, stack: ExitStack, stage: str = "all"
) -> subprocess.Popen[str]:
    """Start one party; its log is printed with its role, and it never outlives the demo."""
    with uninterrupted():
        party = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
            party_command(role, directory, stage),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=party_environment(),
            process_group=0,  # Ctrl-C is for this process, which ends the party
        )
        stack.callback(_end, party)
    assert party.stderr is not None
    reader = Thread(target=_echo, args=(party.stderr, role, console), daemon=True)
    reader.start()
    stack.callback(reader.join, 5)
    return party


def _echo(lines: IO[str], role: str, console: Console) -> None:
    colour = "cyan" if role == "active" else "magenta"
    for line in lines:
        console.print(f"[{colour}]{role:>7}[/] │ ", end="")
        console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)


def _end(party: subprocess.Popen[str]) -> None:
    party.kill()
    party.wait()
    if party.stderr is not None:
        party.stderr.close()


def _show_alignment(
    directory: Path, active: Alignment, passive: Alignment, console: Console
) -> None:
    """Show what each party learned and what it did not, and check it against the truth."""
    console.print()
    learned = Table(title="What each party learned about the other's people")
    for heading in ("", NAMES.active, NAMES.passive):
        learned.add_column(heading, justify="left" if not heading else "right")
    a, p = active.summary, passive.summary
    for fact, ours, theirs in (
        ("own people, each with its UID", a.rows, p.rows),
        ("size of the other's padded set", a.sizes.peer, p.sizes.peer),
        ("size of the padded union", a.sizes.union, p.sizes.union),
        ("people in both tables, estimated", *map(_shared_text, (a.sizes, p.sizes))),
        ("who is in both tables", None, None),
        ("the other's IDs", None, None),
    ):
        shown = (
            "nothing" if n is None else n if isinstance(n, str) else f"{n:,}"
            for n in (ours, theirs)
        )
        learned.add_row(fact, *shown)
    console.print(learned)
    mapping = Table(title=f"First rows of the {NAMES.active}'s own mapping, the only one it has")
    mapping.add_column("person")
    mapping.add_column("rank in the union", justify="right")
    people = {"active": _people(directory, "active"), "passive": _people(directory, "passive")}
    for identifier, rank in zip(people["active"][:4], active.rank_of_row.tolist(), strict=False):
        mapping.add_row(identifier.decode(), f"{rank:,}")
    console.print(mapping)
    _check_truth(people, {"active": active, "passive": passive}, console)


def _shared_text(sizes: UnionSizes) -> str:
    return estimate_text(sizes.shared_estimate, sizes.shared_deviation)


def _people(directory: Path, role: str) -> list[bytes]:
    config = load_config(directory / f"{role}.yml")
    ids = IdReader(config.data.train, config.agreement.id_normalisation)
    return [identifier for part in ids.read() for identifier in part]


def _check_truth(
    people: dict[str, list[bytes]], alignments: dict[str, Alignment], console: Console
) -> None:
    """Check the union against both parties' files, which no party has."""
    ranks: dict[bytes, int] = {}
    agree = True
    for role, ids in people.items():
        for identifier, rank in zip(ids, alignments[role].rank_of_row.tolist(), strict=True):
            agree &= ranks.setdefault(identifier, rank) == rank
    union_size = alignments["active"].summary.union_size
    found = np.sort(list(ranks.values()))
    if not (agree and len(np.unique(found)) == len(ranks) and found[-1] < union_size):
        raise InternalError("the demo's union is wrong")
    console.print(
        "[green]✓[/] Checked with both files, as no party can: equal people have equal UIDs "
        "and different people have different UIDs.\n"
    )


def _show_comparison(rows: list[Comparison], console: Console) -> None:
    table = Table(title="Test metrics")
    table.add_column("training")
    table.add_column("people with real features and label", justify="right")
    table.add_column("AUC", justify="right")
    table.add_column("ACE", justify="right")
    for row in rows:
        table.add_row(row.name, f"{row.real_rows:,}", f"{row.auc:.4f}", f"{row.ace:.4f}")
    console.print(table)


def _show_evaluation(run: RunResult, truth: Scores, console: Console) -> None:
    """Show the parties' estimate next to the truth, which only the demo knows."""
    evaluation = run.evaluation
    assert evaluation is not None
    sizes = evaluation.sizes
    console.print(
        f"The {NAMES.active} has {sizes.rows:,} other people for evaluation, of whom "
        f"{evaluation.scored:,} were scored: about {sizes.shared_estimate:,} with their real "
        "features, the others with somebody else's. Neither party knows which."
    )
    table = Table(title="Evaluation")
    for heading in ("", "estimate", "95% interval", "truth (known only to the demo)"):
        table.add_column(heading, justify="left" if not heading else "right")
    for estimate in evaluation.estimates:
        name, _ = METRICS[estimate.metric]
        table.add_row(
            name,
            f"{estimate.value:.4f}",
            f"{estimate.low:.4f} to {estimate.high:.4f}",
            f"{getattr(truth, estimate.metric):.4f}",
        )
    console.print(table)
    if evaluation.warning:
        console.print(f"[yellow]Warning:[/] {evaluation.warning}.")


def _show_served(directory: Path, console: Console) -> None:
    """Predict some of the passive party's people; their IDs do not leave that party."""
    from florist.passive_party.serving import PredictionClient  # noqa: PLC0415 - loads torch

    config = load_config(directory / "passive.yml")
    people = config.data.test_table
    assert people is not None
    with ExitStack() as stack:
        active = _start("active", directory, console, stack, "serve")
        client = stack.enter_context(PredictionClient.connect(config, timeout=TIME_LIMIT))
        rows = read_whole_table(people, config.agreement.id_normalisation, features=client.columns)
        served = client.predict(rows.columns.slice(0, 3))
        active.terminate()
        active.wait(timeout=TIME_LIMIT)
    table = Table(
        title=f"Requested by the {NAMES.passive}; the {NAMES.active} does not learn for whom"
    )
    table.add_column("person")
    table.add_column("probability of a click", justify="right")
    for identifier, probability in zip(rows.ids, served.tolist(), strict=False):
        table.add_row(identifier.decode(), f"{probability:.4f}")
    console.print(table)
