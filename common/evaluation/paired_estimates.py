"""Differences between two models that are estimated on the same people.

The same people make both figures large or small together, so the difference is known more precisely
than either. A figure's deviation is a sum of *elements*, what each row adds to it (DeLong et al.,
1988). The deviation of a difference is the sum of the differences of the elements, and its variance
follows as in `shuffled_estimate`. For the derivation, see docs/concepts/evaluation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.evaluation import metrics
from florist.common.evaluation.metric_estimates import nearby_counts
from florist.common.evaluation.private_estimate import (
    WIDTH,
    Estimate,
    log_loss_influences,
    share_below,
)
from florist.common.evaluation.shuffled_estimate import (
    Mixed,
    auc_elements,
    auc_value,
    log_loss_elements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from florist.common.evaluation.metric_estimates import Evaluation
    from florist.common.evaluation.metrics import Floats, Labels
    from florist.common.evaluation.shuffled_estimate import Shuffled


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two figures and its 95 % interval; it may be negative."""

    value: float
    standard_error: float

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return WIDTH * self.standard_error

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.half_width

    def __str__(self) -> str:
        return f"{self.value:+.4f} ± {self.half_width:.4f}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScoredPeople:
    """Predictions of the joint model for the active party's own people, some of them shared."""

    #: The class of each person, counted from 0.
    labels: Labels
    #: P(y=1), (people,), or (people, classes).
    predictions: Floats
    #: Predictions with the embeddings of others; None if the active party has no features.
    shuffled: Shuffled | None
    #: How many of the people are shared, as the alignment estimates, and its standard deviation.
    shared: int
    deviation: float

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Gain:
    """What the joint model adds to a baseline, on the same people."""

    #: Of the baseline.
    baseline_auc: Estimate
    baseline_log_loss: Estimate
    #: Higher is better.
    auc: Difference
    #: The reduction: higher is better here too.
    log_loss: Difference


def private_gain(scored: ScoredPeople, found: Evaluation, baseline: Floats) -> Gain:
    """Estimate the gain of the joint model over a baseline that needs no features of the peer.

    Args:
        scored: predictions of the joint model.
        found: the estimates that were made from them.
        baseline: the baseline's predictions for the same people. If the active party has no
            features, they must be the same for everybody.

    Raises:
        ConfigurationError: a class has no row, or a prediction is not finite.
    """
    labels = scored.labels
    baseline_auc, baseline_log_loss = plain_auc(labels, baseline), plain_log_loss(labels, baseline)
    losses = _losses(labels, baseline)
    if scored.shuffled is None:
        auc = Difference(found.auc.value - baseline_auc.value, found.auc.standard_error)
        log_loss = _log_loss_reduction(scored, losses)
    else:
        joint = auc_term(scored)
        auc = joint.minus(baseline_auc.value, plain_auc_elements(labels, baseline))
        joint = _log_loss_term(scored)
        worse = joint.minus(baseline_log_loss.value, losses / len(losses))
        log_loss = Difference(-worse.value, worse.standard_error)
    return Gain(baseline_auc, baseline_log_loss, auc, log_loss)


def plain_gain(labels: Labels, predictions: Floats, baseline: Floats) -> Gain:
    """Return the gain if all features are real, as on a test table that both parties list in full.

    Raises:
        ConfigurationError: a class has no row, or a prediction is not finite.
    """
    joint_auc, baseline_auc = metrics.auc(labels, predictions), plain_auc(labels, baseline)
    elements = plain_auc_elements(labels, predictions) - plain_auc_elements(labels, baseline)
    better = _losses(labels, baseline) - _losses(labels, predictions)
    return Gain(
        baseline_auc,
        plain_log_loss(labels, baseline),
        Difference(joint_auc - baseline_auc.value, _error(elements)),
        Difference(float(better.mean()), _error(better / len(better))),
    )


def plain_auc(labels: Labels, predictions: Floats) -> Estimate:
    """Return the AUC of predictions from real features, with DeLong's error.

    Raises:
        ConfigurationError: a class has no row, or a prediction is not finite.
    """
    value = metrics.auc(labels, predictions)
    return Estimate(value, _error(plain_auc_elements(labels, predictions)))


def plain_log_loss(labels: Labels, predictions: Floats) -> Estimate:
    """Return the log loss of predictions from real features."""
    losses = _losses(labels, predictions)
    return Estimate(float(losses.mean()), _error(losses / len(losses)))


# --- corrected figures and their elements ---


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CorrectedTerm:
    """A figure that is corrected for people without real features, and its elements."""

    value: float
    #: The change over one standard deviation of the number of shared people.
    change: float
    observed: Floats
    shuffled: Floats
    #: For the variance; any of the classes.
    mixed: Mixed

    def minus(self, value: float, direct: Floats) -> Difference:
        """Return the difference from a figure that needs no correction, with its elements."""
        error = self.mixed.error(self.observed, self.shuffled, direct)
        return Difference(self.value - value, math.hypot(error, self.change))

    def minus_corrected(self, other: CorrectedTerm) -> Difference:
        """Return the difference from a figure of the same people with the same partners."""
        error = self.mixed.error(self.observed - other.observed, self.shuffled - other.shuffled)
        return Difference(self.value - other.value, math.hypot(error, self.change - other.change))


def auc_term(scored: ScoredPeople) -> CorrectedTerm:
    """Return the AUC, the mean over classes if there are several, as `estimate_metrics` does.

    Shuffled predictions are required.
    """
    assert scored.shuffled is not None
    if scored.predictions.ndim == 1:
        return _auc_of_class(scored, scored.labels, scored.predictions, scored.shuffled)
    terms = [
        _auc_of_class(
            scored,
            (scored.labels == c).astype(np.int64),
            scored.predictions[:, c],
            scored.shuffled.of_class(c),
        )
        for c in range(scored.predictions.shape[1])
    ]
    return _mean(terms)


def _auc_of_class(
    scored: ScoredPeople, labels: Labels, predictions: Floats, shuffled: Shuffled
) -> CorrectedTerm:
    rows = len(scored)

    def value(shared: int) -> float:
        return auc_value(Mixed(labels, predictions, shuffled, shared / rows), shared)

    mixed = Mixed(labels, predictions, shuffled, scored.shared / rows)
    change = _change(scored, value)
    return CorrectedTerm(value(scored.shared), change, *auc_elements(mixed), mixed)


def _log_loss_term(scored: ScoredPeople) -> CorrectedTerm:
    assert scored.shuffled is not None
    predictions, shuffled = scored.predictions, scored.shuffled
    if predictions.ndim == 1:
        predictions, shuffled = _by_class(predictions), shuffled.by_class()

    def mixed(shared: int) -> Mixed:
        return Mixed(scored.labels, predictions, shuffled, shared / len(scored))

    def value(shared: int) -> float:
        return float(sum(part.sum() for part in log_loss_elements(mixed(shared))))

    used = mixed(scored.shared)
    elements = log_loss_elements(used)
    return CorrectedTerm(value(scored.shared), _change(scored, value), *elements, used)


def _log_loss_reduction(scored: ScoredPeople, losses: Floats) -> Difference:
    """Return by how much the joint model's log loss is lower, without own features."""
    predictions = _by_class(scored.predictions)

    def influences(shared: int) -> Floats:
        return log_loss_influences(scored.labels, predictions, shared / len(scored))

    better = losses - influences(scored.shared)
    change = _change(scored, lambda shared: float(influences(shared).mean()))
    error = math.hypot(_error(better / len(better)), change)
    return Difference(float(better.mean()), error)


def _change(scored: ScoredPeople, value: Callable[[int], float]) -> float:
    """Return the change of a value over one standard deviation of the number of shared people."""
    counts = nearby_counts(scored.shared, scored.deviation, len(scored))
    if not scored.deviation or counts is None:
        return 0.0
    fewer, more = counts
    return (value(more) - value(fewer)) * scored.deviation / (more - fewer)


def _mean(terms: Sequence[CorrectedTerm]) -> CorrectedTerm:
    def mean(name: str) -> Floats:
        return np.asarray(np.mean([getattr(term, name) for term in terms], axis=0))

    return CorrectedTerm(
        float(mean("value")),
        float(mean("change")),
        mean("observed"),
        mean("shuffled"),
        terms[0].mixed,
    )


# --- figures of predictions from real features ---


def plain_auc_elements(labels: Labels, predictions: Floats) -> Floats:
    """Return what each row adds to the deviation of the plain AUC."""
    if predictions.ndim == 2:
        return np.asarray(
            np.mean(
                [
                    plain_auc_elements((labels == c).astype(np.int64), predictions[:, c])
                    for c in range(predictions.shape[1])
                ],
                axis=0,
            )
        )
    one = labels == 1
    elements = np.empty(len(labels))
    for chosen, sign in ((one, 1), (~one, -1)):
        below = share_below(predictions[chosen], np.sort(predictions[~chosen]))
        elements[chosen] = sign * (below - below.mean()) / chosen.sum()
    return elements


def _losses(labels: Labels, predictions: Floats) -> Floats:
    given = _by_class(predictions)[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(given, 2.0**-53)))


def _by_class(predictions: Floats) -> Floats:
    if predictions.ndim == 2:
        return predictions
    return np.stack((1 - predictions, predictions), axis=1)


def _error(elements: Floats) -> float:
    """Return the standard error of a sum of independent elements."""
    return math.sqrt(float(((elements - elements.mean()) ** 2).sum()))
