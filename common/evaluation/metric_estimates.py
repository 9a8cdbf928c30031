"""Estimates all metrics of an evaluation, for any number of classes, with or without own features.

`private_estimate` and `shuffled_estimate` contain the estimators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import private_estimate, shuffled_estimate
from florist.common.evaluation.private_estimate import CurveEstimate, Estimate, imprecision

if TYPE_CHECKING:
    from florist.common.evaluation.metrics import Floats, Labels
    from florist.common.evaluation.private_estimate import PrivateEstimate
    from florist.common.evaluation.shuffled_estimate import Shuffled


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Estimates of the metrics as they would be if all `rows` had their real features."""

    auc: Estimate
    ace: Estimate
    log_loss: Estimate
    #: Only with two classes.
    curve: CurveEstimate | None
    rows: int
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
    labels: Labels, predictions: Floats, shared: int, shuffled: Shuffled | None = None
) -> Evaluation:
    """Estimate the metrics from the active party's own rows, `shared` of which have real features.

    With more than two classes, AUC and ACE are means over the classes, each against the rest. Their
    standard errors are the means of the classes' standard errors, which is an upper bound.

    Args:
        labels: the class of each row, counted from 0.
        predictions: calibrated: P(y=1), (rows,), or (rows, classes).
        shared: the size of the intersection, as counted by the alignment.
        shuffled: predictions with the embeddings of others. Required if predictions also use own
            features.

    Raises:
        ConfigurationError: too few rows are shared, a class has too few rows, or a prediction is
            not finite.
    """
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
