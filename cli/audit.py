"""`florist audit`: what a party's self-audit found, as a table, as JSON, as a plot."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from florist.common.audit.attack_runner import attack_as_peer
from florist.common.audit.audit_folder import AuditFolder
from florist.common.audit.findings import AuditRecord, Figures, Finding, verdict
from florist.common.audit.kept_view import load_view
from florist.common.core.errors import ConfigurationError
from florist.common.reports.audit_report import HEADS, conclusion, draw_audits, table_rows
from florist.common.reports.plots import save_png

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from florist.common.session.run_directory import RunDirectory

#: Bootstrap samples of an interval, where there is time.
SAMPLES = 1000


def load_audit(runs: RunDirectory) -> AuditRecord:
    """What the self-audit of a run has found so far.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    path = AuditFolder(runs.audit).record
    if not path.exists():
        what = "holds no self-audit" if runs.path.is_dir() else "is no folder"
        raise ConfigurationError(
            f"{runs.path} {what}; name a run_directory whose training has begun, with audit.enabled"
            " set to true"
        )
    return AuditRecord.load(path)


def audit_again(runs: RunDirectory, record: AuditRecord) -> Figures:
    """All attacks once more, with more precise intervals, on what was kept of the peer's view.

    Raises:
        ConfigurationError: it was not kept, or cannot be read.
    """
    alignment = runs.load_alignment("train")
    sightings = load_view(AuditFolder(runs.audit).view, alignment.summary.union_sha256)
    own = np.zeros(alignment.summary.union_size, dtype=np.bool_)
    own[alignment.rank_of_row] = True
    results = attack_as_peer(record.role, sightings, own, SAMPLES)
    findings = tuple(found for found in map(Finding.of, results) if found)
    return Figures(max(seen.step for seen in sightings) + 1, "epochs", findings)


def as_json(record: AuditRecord, newest: list[Figures]) -> dict[str, Any]:
    """The newest figures with their verdicts, and those of the whole run."""
    return {
        "role": record.role,
        "verdict": record.verdict,
        "settings": record.settings.model_dump(mode="json"),
        "followed": record.followed,
        "newest": [
            asdict(figures) | {"verdict": verdict(figures.findings, record.settings)}
            for figures in newest
        ],
        "audits": [asdict(figures) for figures in record.audits],
    }


def describe_audit(record: AuditRecord, newest: list[Figures], out: Console) -> None:
    """Print the newest figures and what to make of them."""
    step = max((figures.step for figures in newest), default=0)
    title = f"What the peer can tell from what we send, after step {step:,}"
    table = Table(*HEADS, title=title, box=SIMPLE)
    for row in table_rows(newest, record.settings):
        table.add_row(*row)
    if newest:
        out.print(table)
    out.print(conclusion(record))
    limits = {
        key: value
        for key, value in record.settings.model_dump().items()
        if key.endswith("_above") and value is not None
    }
    shown = ", ".join(f"{key} {value:g}" for key, value in limits.items()) or "none"
    out.print(f"Limits under `audit`: {shown}. 0.5 and 1% are chance.")


def draw_to(path: Path, record: AuditRecord) -> None:
    """Draw all audits of a run as a picture.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        save_png(path, lambda figure: draw_audits(figure, record), width=8, height=4)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None
