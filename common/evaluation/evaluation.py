"""What an evaluation finds, whatever the model: two classes or more, own features or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import paired_estimate, private_estimate
from florist.common.evaluation.private_estimate import CurveEstimate, Estimate, vagueness

if TYPE_CHECKING:
    from florist.common.evaluation.metrics import Floats, Labels
    from florist.common.evaluation.paired_estimate import Shuffled
    from florist.common.evaluation.private_estimate import PrivateEstimate


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Estimates of what the metrics would be if all `rows` had their real features."""

    auc: Estimate
    ace: Estimate
    log_loss: Estimate
    #: With two classes.
    curve: CurveEstimate | None
    rows: int
    shared: int

    @property
    def warning(self) -> str:
        """Why the estimate is too vague to use; empty where it is not."""
        return vagueness(self.auc, self.rows, self.shared)


def check_labels(labels: Labels, classes: int) -> None:
    """Refuse what cannot be evaluated, whatever the predictions.

    Raises:
        ConfigurationError: a class has fewer than two rows.
    """
    counts = np.bincount(labels, minlength=classes)
    if counts.min() < 2:
        raise ConfigurationError(
            "data.evaluation: the private estimate needs at least two rows of each class among "
            f"the {len(labels):,} that are scored; add some"
        )


def estimate(
    labels: Labels, predictions: Floats, shared: int, shuffled: Shuffled | None = None
) -> Evaluation:
    """From the active party's own rows, `shared` of which have real features.

    Predictions are P(y=1), (rows,), or (rows, classes). With more than two classes, AUC and ACE are
    means over the classes, each against the rest. Their errors are the means of the classes'
    errors, which is what they are at most.

    Args:
        labels: classes from 0 on.
        predictions: calibrated.
        shared: as counted by the alignment.
        shuffled: with the embeddings of others; given where predictions use own features too.

    Raises:
        ConfigurationError: too few rows are shared or of a class, or a prediction is not finite.
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
        log_loss = paired_estimate.log_loss_estimate(labels, predictions, shuffled, r)
    auc, ace = (_mean([getattr(found, name) for found in each]) for name in ("auc", "ace"))
    return Evaluation(auc, ace, log_loss, None, len(labels), shared)


def _of_class(
    labels: Labels, predictions: Floats, shared: int, shuffled: Shuffled | None
) -> PrivateEstimate:
    if shuffled is None:
        return private_estimate.private_estimate(labels, predictions, shared)
    return paired_estimate.paired_estimate(labels, predictions, shuffled, shared)


def _mean(estimates: list[Estimate]) -> Estimate:
    return Estimate(
        float(np.mean([estimate.value for estimate in estimates])),
        float(np.mean([estimate.standard_error for estimate in estimates])),
    )
