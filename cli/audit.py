"""Output of `florist audit`: a table, JSON or a plot."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.table import Column, Table

from florist.common.audit.findings import AuditRecord, Figures, verdict
from florist.common.core.errors import ConfigurationError
from florist.common.reports.audit_report import (
    HEADS,
    WINDOW_HEADS,
    conclusion,
    draw_audits,
    skipped_text,
    table_rows,
    window_rows,
)
from florist.common.reports.plots import save_png

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console


def audit_json(record: AuditRecord, newest: list[Figures]) -> dict[str, object]:
    """Return the newest findings with their verdicts, and those of the whole run."""
    return {
        "role": record.role,
        "verdict": record.verdict,
        "settings": record.settings.model_dump(mode="json"),
        "followed": record.followed,
        "worst_window": record.summary()["worst_window"],
        "worst_stratum": record.summary()["worst_stratum"],
        "newest": [
            asdict(figures) | {"verdict": verdict(figures.findings, record.settings)}
            for figures in newest
        ],
        "audits": [asdict(figures) for figures in record.audits],
    }


def describe_audit(record: AuditRecord, newest: list[Figures], out: Console) -> None:
    """Print the newest findings and the conclusion."""
    step = max((figures.step for figures in newest), default=0)
    whole = [figures for figures in newest if figures.over == "epochs"]
    audits = [*(figures for figures in record.audits if figures.over != "epochs"), *whole]
    title = f"What the peer can infer from what we send, after step {step:,}"
    heads = [head for head in HEADS if head not in ("stratum", "window")]
    table = _table(title, heads, whole=1)
    for row in table_rows(audits, record.settings):
        attack, over_all, in_stratum, stratum, in_window, window, *rest = row
        # Where it is goes below the figure: eight columns do not fit a terminal of 80 characters.
        table.add_row(attack, over_all, f"{in_stratum}\n{stratum}", f"{in_window}\n{window}", *rest)
    windows = _table("The strongest attack in each part of the run", WINDOW_HEADS, whole=2)
    for row in window_rows(newest, record.settings):
        windows.add_row(*row)
    if newest:
        out.print(table)
        out.print(windows)
    text = skipped_text(record)
    if text is not None:
        out.print(text, markup=False)
    out.print(conclusion(record))
    limits = {
        key: value
        for key, value in record.settings.model_dump().items()
        if key.endswith("_above") and value is not None
    }
    shown = ", ".join(f"{key} {value:g}" for key, value in limits.items()) or "none"
    out.print(
        f"Limits under `audit`: {shown}. They apply to the lower end of each interval, in each "
        "part of the run. Chance is AUC 0.5 and TPR 1%."
    )


def _table(title: str, heads: Sequence[str], *, whole: int) -> Table:
    """Return an empty table whose first columns, `whole` of them, do not wrap as the others do."""
    columns = [
        Column(head, no_wrap=place < whole, overflow="fold") for place, head in enumerate(heads)
    ]
    return Table(*columns, title=title, box=SIMPLE, collapse_padding=True, pad_edge=False)


def draw_to(path: Path, record: AuditRecord) -> None:
    """Plot all audits of a run to a PNG file.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        save_png(path, lambda figure: draw_audits(figure, record), width=8, height=4)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None
