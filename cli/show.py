"""Tables that describe the results of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import markup
from rich.table import Table

from florist.api.runs import (
    epoch_metrics,
    load_evaluation,
    load_history,
    load_training_worth,
)
from florist.common.evaluation.metric_names import METRICS
from florist.common.reports.size_statements import estimate_text, privacy_text
from florist.common.session.evaluated_model import OUTDATED
from florist.common.session.run_directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from florist.api.records import Records
    from florist.api.runs import EpochMetrics, EvaluationResult, RunResult, WorthResult
    from florist.common.session.alignment_result import AlignmentSummary
    from florist.common.session.union_sizes import UnionSizes

#: Below and above these shares of the smaller set, a guess about anybody is likely to be right.
NEARLY_NONE, NEARLY_ALL = 0.05, 0.95

#: Columns whose importance is printed; the report has all of them.
SHOWN_COLUMNS = 10


def describe_stage(runs: RunDirectory, stage: str, out: Console) -> None:
    """Print the result of a stage that has just finished."""
    if stage == "align":
        describe_alignment(runs.load_summary(), out)
    elif stage == "train":
        describe_training(epoch_metrics(load_history(runs)), runs.training, out)
        describe_worth(load_training_worth(runs), out)
    elif stage == "evaluate":
        evaluation = load_evaluation(runs)
        assert evaluation is not None
        describe_evaluation(evaluation, runs.evaluation, out)
        describe_worth(evaluation.worth, out)


def describe_run(run: RunResult, out: Console) -> None:
    """Print the results of all finished stages."""
    runs = RunDirectory(run.path)
    describe_alignment(run.alignment, out)
    if run.history:
        describe_training(run.history, runs.training, out)
    if run.evaluation is not None:
        describe_evaluation(run.evaluation, runs.evaluation, out)
    elif run.evaluation_is_outdated:
        out.print(OUTDATED)
    describe_worth(run.worth, out)


def protocol_text(summary: AlignmentSummary) -> str:
    """Return the protocol of the union, and who merged the sets."""
    if summary.merging is None:
        return "algorithm-1"
    party = summary.party if summary.merging == summary.role else summary.peer
    return f"merged; {party} merged the sets"


def describe_alignment(summary: AlignmentSummary, out: Console) -> None:
    """Print what this party learned from the alignment, and what it did not."""
    table = Table(title=f"Alignment of {summary.party} ({summary.role}) with {summary.peer}")
    table.add_column("")
    table.add_column("value", justify="right")
    sizes = summary.sizes
    shared = estimate_text(sizes.shared_estimate, sizes.shared_deviation)
    for name, value in (
        ("rows of our table, each with its rank in the union", f"{summary.rows:,}"),
        ("our padded set, as announced", f"{sizes.own:,}"),
        (f"{summary.peer}'s padded set, as announced", f"{sizes.peer:,}"),
        ("union", f"{sizes.union:,}"),
        ("estimated number of people in both sets", shared),
        ("privacy of the sizes", privacy_text(summary.privacy)),
        ("SHA-256 of the union", summary.union_sha256[:16] + "…"),
        ("protocol", protocol_text(summary)),
        ("group, engine", f"{summary.agreement['group']}, {summary.engine}"),
        ("seconds", ", ".join(f"{part} {s:g}" for part, s in summary.seconds.items())),
        (
            "sent, received (MB)",
            f"{summary.bytes_sent / 1e6:.1f}, {summary.bytes_received / 1e6:.1f}",
        ),
        ("finished", summary.finished_at),
    ):
        table.add_row(name, value)
    out.print(table)
    out.print(membership_statement(summary))


def membership_statement(summary: AlignmentSummary) -> str:
    """Return what this party knows about which of its people the peer has.

    If nobody is shared, or a whole set, exact sizes tell it exactly, and private ones nearly so.
    """
    party, peer, sizes = summary.party, summary.peer, summary.sizes
    if not sizes.is_exact:
        return _estimated_statement(party, peer, sizes)
    shared = sizes.shared_estimate
    if not shared:
        known = f"The sizes reveal that {peer} has none of {party}'s people, and the reverse."
    elif shared == sizes.own == sizes.peer:
        known = f"The sizes reveal that {party} and {peer} have exactly the same people."
    elif shared == summary.rows:
        known = f"The sizes reveal that {peer} has every one of {party}'s people."
    elif shared == sizes.peer:
        known = (
            f"The sizes reveal to both that {party} has every one of {peer}'s people. {party} does "
            f"not know which of its own people these are."
        )
    else:
        return (
            f"{party} does not know which of its people {peer} also has, and learned nothing about "
            "other people."
        )
    return f"{known} Alignment cannot hide who is shared when nobody is, or everybody."


def _estimated_statement(party: str, peer: str, sizes: UnionSizes) -> str:
    unknown = (
        f"{party} does not know which of its people {peer} also has, nor exactly how many, and "
        "learned nothing about other people."
    )
    if NEARLY_NONE < sizes.shared_share < NEARLY_ALL:
        return unknown
    few_or_many = "few" if sizes.shared_share <= NEARLY_NONE else "nearly all"
    return (
        f"{unknown} But by the estimate {few_or_many} of the people in the smaller set are in "
        "both, so that a guess about any of them is likely to be right. Alignment cannot hide that."
    )


def describe_training(history: Records[EpochMetrics], folder: Path, out: Console) -> None:
    """Print the metrics of each epoch."""
    table = Table(title="Training by epoch")
    for heading in ("epoch", "loss", "test AUC", "test ACE", "test log loss"):
        table.add_column(heading, justify="right")
    for epoch in history:
        metrics = (epoch.loss, epoch.auc, epoch.ace, epoch.log_loss)
        table.add_row(str(epoch.epoch), *("-" if m is None else f"{m:.4f}" for m in metrics))
    out.print(table)
    out.print(f"Report: {folder / 'report.html'}", soft_wrap=True)


def describe_evaluation(evaluation: EvaluationResult, folder: Path, out: Console) -> None:
    """Print the estimated metrics with their confidence intervals."""
    if not evaluation.estimates:
        out.print("Evaluation: finished; by the agreement, only the active party gets the metrics.")
        return
    table = Table(title="Evaluation, estimated without knowing who is shared")
    for heading in ("", "estimate", "95% interval"):
        table.add_column(heading, justify="left" if not heading else "right")
    for estimate in evaluation.estimates:
        name, _ = METRICS[estimate.metric]
        interval = f"{estimate.low:.4f} to {estimate.high:.4f}"
        table.add_row(name, f"{estimate.value:.4f}", interval)
    out.print(table)
    sizes = evaluation.sizes
    shared = estimate_text(sizes.shared_estimate, sizes.shared_deviation)
    out.print(f"{shared} of the {evaluation.scored:,} people scored are in both tables.")
    if evaluation.warning:
        out.print(f"[yellow]Warning:[/] {evaluation.warning}.")
    out.print(f"Report: {folder / 'report.html'}", soft_wrap=True)


def describe_worth(worth: WorthResult | None, out: Console) -> None:
    """Print what the joint model adds to own data alone, and which own columns matter."""
    if worth is None:
        return
    if worth.gain:
        table = Table(title="Was it worth it?")
        for heading in ("", "own data alone", "joint model", "gain", "95% interval"):
            table.add_column(heading, justify="right" if heading else "left")
        for alone, joint, gain in zip(worth.baseline, worth.joint, worth.gain, strict=True):
            table.add_row(
                METRICS[gain.metric][0],
                f"{alone.value:.4f}",
                f"{joint.value:.4f}",
                f"{gain.value:+.4f}",
                f"{gain.low:+.4f} to {gain.high:+.4f}",
            )
        out.print(table)
    if worth.importance:
        _describe_importance(worth, out)
    for sentence in worth.missing:
        out.print(sentence)


def _describe_importance(worth: WorthResult, out: Console) -> None:
    """Print the most important columns."""
    peer = worth.peer_importance
    table = Table(title="Importance of our columns")
    table.add_column("")
    for heading in ("part of what we send" if peer is None else "drop in AUC", "95% interval"):
        table.add_column(heading, justify="right")
    columns = list(worth.importance)[:SHOWN_COLUMNS]
    for each in columns if peer is None else [peer, *columns]:
        table.add_row(
            markup.escape(each.column), f"{each.value:.4f}", f"{each.low:.4f} to {each.high:.4f}"
        )
    out.print(table)
    if left_out := len(worth.importance) - len(columns):
        out.print(f"{left_out:,} less important columns are in the report.")
