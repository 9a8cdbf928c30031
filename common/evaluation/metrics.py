"""Quality of predictions: AUC, log loss and ACE.

Labels are classes 0, 1, …, one per row. Predictions are P(y=1), one per row, with two classes, and
(rows, classes) with more. Everything is computed in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Labels = npt.NDArray[np.int64]

#: The default number of bins of ACE and of calibration curves.
BINS = 15


@dataclass(frozen=True, slots=True)
class Scores:
    """The paper's two measures of utility, and log loss."""

    auc: float
    ace: float
    log_loss: float


def evaluate(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> Scores:
    """Return AUC, ACE and log loss.

    Raises:
        ConfigurationError: a class has no row, or a prediction is not finite.
    """
    return Scores(auc(labels, predictions), ace(labels, predictions), log_loss(labels, predictions))


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the ROC curve; with several classes, the mean of each against the rest.

    With two classes the scores need not be probabilities.

    Raises:
        ConfigurationError: a class has no row, or a score is not finite.
    """
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - takes more than a second

    classes, values = _checked(labels, scores)
    present = np.unique(classes)
    if values.ndim == 1:
        _require_classes(present, 2)
        return float(roc_auc_score(classes, values))
    _require_classes(present, values.shape[1])
    return float(np.mean([roc_auc_score(classes == c, values[:, c]) for c in present]))


def log_loss(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the mean of -log of the true class's probability, at most 36.7 (2^-53) per row.

    Raises:
        ConfigurationError: a prediction is not finite.
    """
    classes, values = _checked(labels, predictions)
    _require_probabilities(values)
    if values.ndim == 1:
        given = np.where(classes == 1, values, 1 - values)
    else:
        given = values[np.arange(len(classes)), classes]
    return float(-np.log(np.maximum(given, 2.0**-53)).mean())


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCurve:
    """Per bin: the mean prediction, the frequency of the class, and the number of rows."""

    confidence: Floats
    accuracy: Floats
    count: Labels


def calibration_curve(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, bins: int = BINS
) -> CalibrationCurve:
    """Return the curve over bins of equal count (they differ by at most 1), by rising prediction.

    With fewer rows than bins there is one bin per row. Labels are 0 or 1, predictions P(y=1). Rows
    with equal predictions are interchangeable: each counts with their mean label, so that the
    result does not depend on the order of rows if a bin ends among them.

    Raises:
        ConfigurationError: a prediction is not finite.
    """
    classes, values = _checked(labels, predictions)
    if values.ndim != 1:
        raise ValueError("a calibration curve needs the predictions of a single class")
    _require_probabilities(values)
    bins = min(bins, len(values))
    distinct, counts = np.unique(values, return_counts=True)
    groups = np.searchsorted(distinct, values)
    mean_labels = np.bincount(groups, weights=classes) / counts
    ends = np.arange(bins + 1) * len(values) // bins
    sizes = np.diff(ends)
    confidence = np.add.reduceat(np.repeat(distinct, counts), ends[:-1]) / sizes
    accuracy = np.add.reduceat(np.repeat(mean_labels, counts), ends[:-1]) / sizes
    return CalibrationCurve(confidence, accuracy, sizes)


def ace(labels: npt.ArrayLike, predictions: npt.ArrayLike, bins: int = BINS) -> float:
    """Return the adaptive calibration error (Nixon et al., 2019): mean |accuracy - confidence|.

    The mean is over the bins of `calibration_curve` and over the classes. With two classes it is
    over class 1 alone: in the mirrored bins class 0 has the same differences.

    Raises:
        ConfigurationError: a prediction is not finite.
    """
    classes, values = _checked(labels, predictions)
    if values.ndim == 1:
        curve = calibration_curve(classes, values, bins)
        return float(np.abs(curve.accuracy - curve.confidence).mean())
    return float(np.mean([ace(classes == c, values[:, c], bins) for c in range(values.shape[1])]))


def _checked(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> tuple[Labels, Floats]:
    classes = np.asarray(labels).astype(np.int64)
    values = np.asarray(predictions, dtype=np.float64)
    if classes.ndim != 1 or values.ndim not in {1, 2} or len(classes) != len(values):
        raise ValueError(f"labels {classes.shape} and predictions {values.shape} differ in shape")
    if not len(classes):
        raise ConfigurationError("there are no rows to evaluate")
    known = 2 if values.ndim == 1 else values.shape[1]
    if not np.array_equal(classes, labels) or classes.min() < 0 or classes.max() >= known:
        raise ValueError(f"labels must be whole numbers from 0 to {known - 1}")
    if not np.isfinite(values).all():
        raise ConfigurationError(
            "some predictions are NaN or infinite: training diverged; try a smaller learning rate"
        )
    return classes, values


def _require_classes(present: Labels, classes: int) -> None:
    if len(present) < classes:
        missing = sorted(set(range(classes)) - set(present.tolist()))
        raise ConfigurationError(
            "AUC needs rows of every class, but no row has the label "
            + ", ".join(str(c) for c in missing)
        )


def _require_probabilities(values: Floats) -> None:
    if values.min() < 0 or values.max() > 1:
        raise ValueError("predictions must be probabilities between 0 and 1")
