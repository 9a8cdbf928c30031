"""What a finished stage has found, in one sentence and as figures: for the status page and logs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metric_names import METRICS

if TYPE_CHECKING:
    from florist.common.session.run_directory import RunDirectory
    from florist.common.session.stage_state import StageName


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The outcome of a stage: aggregates that the party may show to its own people."""

    text: str
    figures: dict[str, float] = field(default_factory=dict)


def read_outcome(runs: RunDirectory, stage: StageName) -> StageOutcome:
    """Read the outcome from the stage's result. A result that cannot be read is only "done"."""
    try:
        return _READERS[stage](runs)
    except (ConfigurationError, OSError, ValueError, KeyError, TypeError, IndexError):
        return StageOutcome("done")  # the result itself is not affected


def _alignment(runs: RunDirectory) -> StageOutcome:
    sizes = runs.load_summary().sizes
    return StageOutcome(f"the union has {sizes.union:,} IDs", {"union": sizes.union})


def _training(runs: RunDirectory) -> StageOutcome:
    epochs: list[dict[str, Any]] = runs.load_history()["epochs"]
    last, count = epochs[-1], len(epochs)
    figures = {name: float(last[name]) for name in ("loss", *METRICS) if last.get(name) is not None}
    text = f"loss {figures['loss']:.4f} after {count} epoch{'s' if count > 1 else ''}"
    if "auc" in figures:
        text += f", AUC {figures['auc']:.4f} on the test table"
    return StageOutcome(text, figures)


def _evaluation(runs: RunDirectory) -> StageOutcome:
    path = runs.evaluation / "evaluation.json"
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    estimates = facts["estimates"]
    if estimates is None:
        return StageOutcome("done; by agreement, only the active party gets the metrics")
    auc = estimates["auc"]
    figures = {name: float(estimates[name]["value"]) for name in METRICS}
    text = f"AUC {auc['value']:.4f} (95% interval {auc['low']:.4f} to {auc['high']:.4f})"
    if facts["warning"]:
        text += f"; warning: {facts['warning']}"
    return StageOutcome(text, figures)


_READERS = {"align": _alignment, "train": _training, "evaluate": _evaluation}
