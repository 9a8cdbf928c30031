"""Was it worth it? What the joint model adds, and which columns matter: results as data and JSON.

The method and its limits: docs/concepts/worth.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.progress import Progress
    from florist.common.evaluation.importance import ColumnImportance
    from florist.common.evaluation.metric_estimates import Evaluation
    from florist.common.evaluation.paired_estimates import Difference, Gain
    from florist.common.evaluation.private_estimate import Estimate
    from florist.common.settings.party_config import PartyConfig

#: What importance is measured in: `auc` is how much the AUC drops, at the active party; `share` is
#: the part of the variance of what the passive party sends.
ImportanceUnit = Literal["auc", "share"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The joint model next to the same learner on the active party's own data alone."""

    #: Rows and feature columns of the active party that the baseline was trained with. Without
    #: columns it predicts the class frequencies for everybody.
    rows: int
    columns: int
    #: People on whom both were compared.
    people: int
    joint_auc: Estimate
    joint_log_loss: Estimate
    gain: Gain


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of a party's own columns, the most important first."""

    unit: ImportanceUnit
    #: People on whom it was measured.
    people: int
    columns: tuple[ColumnImportance, ...]
    #: Of all that the peer sends; at the active party only.
    peer: Difference | None = None


@dataclass(frozen=True, slots=True)
class Worth:
    """What a party knows about the worth of the joint model after a stage."""

    comparison: Comparison | None = None
    importance: Importance | None = None
    #: Sentences on why something is missing.
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the facts for JSON files."""
        return {
            "comparison": None if self.comparison is None else _comparison_json(self.comparison),
            "importance": None if self.importance is None else _importance_json(self.importance),
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluated:
    """What a party has after its part in an evaluation."""

    #: None if the agreement keeps it from this party.
    found: Evaluation | None
    #: Computes what the joint model is worth to this party, without the peer. It may take as long
    #: as training, so it is called after the session.
    worth: Callable[[PartyConfig, Progress], Worth]


# --- JSON ---


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    gain = comparison.gain
    return {
        "rows": comparison.rows,
        "columns": comparison.columns,
        "people": comparison.people,
        "joint": _figures_json(comparison.joint_auc, comparison.joint_log_loss),
        "baseline": _figures_json(gain.baseline_auc, gain.baseline_log_loss),
        "gain": _figures_json(gain.auc, gain.log_loss),
    }


def _importance_json(importance: Importance) -> dict[str, Any]:
    return {
        "unit": importance.unit,
        "people": importance.people,
        "columns": [
            {"column": each.column, **_figure_json(each.importance)} for each in importance.columns
        ],
        "peer": None if importance.peer is None else _figure_json(importance.peer),
    }


def _figures_json(
    auc: Estimate | Difference, log_loss: Estimate | Difference
) -> dict[str, dict[str, float]]:
    return {"auc": _figure_json(auc), "log_loss": _figure_json(log_loss)}


def _figure_json(figure: Estimate | Difference) -> dict[str, float]:
    return {
        "value": figure.value,
        "standard_error": figure.standard_error,
        "low": figure.low,
        "high": figure.high,
    }
