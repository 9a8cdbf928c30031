"""Estimates all metrics of an evaluation, for any number of classes, with or without own features.

`private_estimate` and `shuffled_estimate` contain the estimators.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import private_estimate, shuffled_estimate
from florist.common.evaluation.private_estimate import CurveEstimate, Estimate, imprecision

if TYPE_CHECKING:
    from florist.common.evaluation.metrics import Floats, Labels
    from florist.common.evaluation.private_estimate import PrivateEstimate
    from florist.common.evaluation.shuffled_estimate import Shuffled


#: The least number of shared rows for which all estimates are defined.
FEWEST_SHARED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Estimates of the metrics as they would be if all `rows` had their real features."""

    auc: Estimate
    ace: Estimate
    log_loss: Estimate
    #: Only with two classes.
    curve: CurveEstimate | None
    rows: int
    #: How many of them have real features: the estimate that both parties know.
    shared: int

    @property
    def warning(self) -> str:
        """Why the estimate is too imprecise to use; empty if it is precise enough."""
        return imprecision(self.auc, self.rows, self.shared)


def check_labels(labels: Labels, classes: int) -> None:
    """Check that there are enough labels for an evaluation.

    Raises:
        ConfigurationError: a class has fewer than two rows.
    """
    counts = np.bincount(labels, minlength=classes)
    if counts.min() < 2:
        raise ConfigurationError(
            "data.evaluation: the private estimate needs at least two rows of each class among "
            f"the {len(labels):,} that are scored; add rows"
        )


def estimate_metrics(
    labels: Labels,
    predictions: Floats,
    shared: int,
    shuffled: Shuffled | None = None,
    *,
    deviation: float = 0.0,
) -> Evaluation:
    """Estimate the metrics from the active party's own rows, `shared` of which have real features.

    If `shared` is itself an estimate, the intervals are wider: the square of each standard error
    grows by that of the change over one standard deviation of `shared`, which is independent of the
    labels.

    With more than two classes, AUC and ACE are means over the classes, each against the rest. Their
    standard errors are the means of the classes' standard errors, which is an upper bound.

    Args:
        labels: the class of each row, counted from 0.
        predictions: calibrated: P(y=1), (rows,), or (rows, classes).
        shared: the size of the intersection, as estimated by the alignment.
        shuffled: predictions with the embeddings of others. Required if predictions also use own
            features.
        deviation: the standard deviation of `shared`; 0 if it is exact.

    Raises:
        ConfigurationError: too few rows are shared, a class has too few rows, or a prediction is
            not finite.
    """
    found = _estimate_with(labels, predictions, shared, shuffled)
    if not deviation:
        return found
    counts = nearby_counts(shared, deviation, len(labels))
    if counts is None:
        return found
    fewer, more = counts
    low = _estimate_with(labels, predictions, fewer, shuffled)
    high = _estimate_with(labels, predictions, more, shuffled)
    return _widened(found, low, high, deviation / (more - fewer))


def nearby_counts(shared: int, deviation: float, rows: int) -> tuple[int, int] | None:
    """Return numbers of shared rows about one standard deviation below and above the estimate.

    None if no other number is possible.
    """
    step = max(round(deviation), 1)
    fewer, more = max(shared - step, FEWEST_SHARED), min(shared + step, rows)
    return (fewer, more) if fewer < more else None


def _widened(found: Evaluation, low: Evaluation, high: Evaluation, scale: float) -> Evaluation:
    """Return the evaluation with the uncertainty of the number of shared rows added.

    `low` and `high` are the evaluations with fewer and more of them; their difference times `scale`
    is the change over one standard deviation.
    """

    def widened(name: str) -> Estimate:
        estimate: Estimate = getattr(found, name)
        change = scale * (getattr(high, name).value - getattr(low, name).value)
        return Estimate(estimate.value, math.hypot(estimate.standard_error, change))

    curve = found.curve
    if curve is not None and low.curve is not None and high.curve is not None:
        change = scale * (high.curve.rate - low.curve.rate)
        curve = replace(curve, standard_error=np.hypot(curve.standard_error, change))
    return replace(
        found, auc=widened("auc"), ace=widened("ace"), log_loss=widened("log_loss"), curve=curve
    )


def _estimate_with(
    labels: Labels, predictions: Floats, shared: int, shuffled: Shuffled | None
) -> Evaluation:
    """Estimate the metrics, given exactly how many rows are shared."""
    if predictions.ndim == 1:
        check_labels(labels, 2)
        found = _of_class(labels, predictions, shared, shuffled)
        return Evaluation(
            found.auc, found.ace, found.log_loss, found.curve, found.rows, found.shared
        )
    classes = predictions.shape[1]
    check_labels(labels, classes)
    each = [
        _of_class(
            (labels == c).astype(np.int64),
            predictions[:, c],
            shared,
            None if shuffled is None else shuffled.of_class(c),
        )
        for c in range(classes)
    ]
    r = shared / len(labels)
    if shuffled is None:
        log_loss = private_estimate.log_loss_estimate(labels, predictions, r)
    else:
        log_loss = shuffled_estimate.log_loss_estimate(labels, predictions, shuffled, r)
    auc, ace = _mean([found.auc for found in each]), _mean([found.ace for found in each])
    return Evaluation(auc, ace, log_loss, None, len(labels), shared)


def _of_class(
    labels: Labels, predictions: Floats, shared: int, shuffled: Shuffled | None
) -> PrivateEstimate:
    if shuffled is None:
        return private_estimate.private_estimate(labels, predictions, shared)
    return shuffled_estimate.shuffled_estimate(labels, predictions, shuffled, shared)


def _mean(estimates: list[Estimate]) -> Estimate:
    return Estimate(
        float(np.mean([estimate.value for estimate in estimates])),
        float(np.mean([estimate.standard_error for estimate in estimates])),
    )
