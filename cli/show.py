"""What a finished run holds, for people."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metric_names import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.session.run_directory import AlignmentSummary


def describe(summary: AlignmentSummary, console: Console | None = None) -> None:
    """Print an alignment: what this party now knows, and what it does not."""
    out = console or Console()
    table = Table(title=f"Alignment of {summary.party} ({summary.role}) with {summary.peer}")
    table.add_column("fact")
    table.add_column("value", justify="right")
    padded = " (padded with dummies)" if summary.own_dummies else ""
    for fact, value in (
        ("rows of our table, each with its place in the union", f"{summary.rows:,}"),
        (f"our set{padded}", f"{summary.own_size:,}"),
        (f"{summary.peer}'s set, as it announced it", f"{summary.peer_size:,}"),
        ("union", f"{summary.union_size:,}"),
        ("in both sets: how many, not who", f"{summary.shared_size:,}"),
        ("union, SHA-256", summary.union_sha256[:16] + "…"),
        ("group, engine", f"{summary.agreement['group']}, {summary.engine}"),
        ("seconds", ", ".join(f"{part} {s:g}" for part, s in summary.seconds.items())),
        (
            "sent, received (MB)",
            f"{summary.bytes_sent / 1e6:.1f}, {summary.bytes_received / 1e6:.1f}",
        ),
        ("finished", summary.finished_at),
    ):
        table.add_row(fact, value)
    out.print(table)
    out.print(
        f"{summary.party} does not know which of its people are also {summary.peer}'s, "
        "nor anything of the others."
    )


def describe_evaluation(folder: Path, console: Console | None = None) -> None:
    """Print an evaluation: the estimates, how vague they are, and where its report is."""
    with _told_if_damaged(folder / "evaluation.json") as text:
        _describe_evaluation(json.loads(text), folder, console or Console())


def _describe_evaluation(facts: dict[str, Any], folder: Path, out: Console) -> None:
    sizes, estimates = facts["sizes"], facts["estimates"]
    if estimates is None:
        out.print("Evaluation: done; by the agreement, only the active party knows the figures.")
        return
    table = Table(title="Evaluation, estimated without knowing who is shared")
    for heading in ("", "estimate", "95 % interval"):
        table.add_column(heading, justify="left" if not heading else "right")
    for key, (name, _) in METRICS.items():
        found = estimates[key]
        interval = f"{found['low']:.4f} to {found['high']:.4f}"
        table.add_row(name, f"{found['value']:.4f}", interval)
    out.print(table)
    scored = facts.get("scored", sizes["peer"])
    out.print(f"{sizes['shared']:,} of the {scored:,} people scored are in both tables.")
    if facts["warning"]:
        out.print(f"[yellow]Warning:[/] {facts['warning']}.")
    out.print(f"Report: {folder / 'report.html'}", soft_wrap=True)


def describe_training(folder: Path, console: Console | None = None) -> None:
    """Print a trained half: its figures, epoch by epoch, and where its report is."""
    with _told_if_damaged(folder / "history.json") as text:
        _describe_training(json.loads(text), folder, console or Console())


def _describe_training(history: dict[str, Any], folder: Path, out: Console) -> None:
    table = Table(title="Training, epoch by epoch")
    for heading in ("epoch", "loss", "test AUC", "test ACE", "test log loss"):
        table.add_column(heading, justify="right")
    for epoch in history["epochs"]:
        figures = (epoch[name] for name in ("loss", "auc", "ace", "log_loss"))
        table.add_row(str(epoch["epoch"] + 1), *("-" if f is None else f"{f:.4f}" for f in figures))
    out.print(table)
    out.print(f"Report: {folder / 'report.html'}", soft_wrap=True)


@contextmanager
def _told_if_damaged(path: Path) -> Iterator[str]:
    """The file's text, for a block that takes what it says as it should be.

    Raises:
        ConfigurationError: it cannot be read, or is not as it should be.
    """
    try:
        yield path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigurationError(f"{path} is damaged; restore it, or run the stage again") from None
