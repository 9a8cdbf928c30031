"""Estimates metrics when it is unknown which predictions are based on real features.

The active party scores its own n test people. `shared` of them have real features. The others have
the features of random rows of the passive party's test table, and nobody knows which ones they are.
Their labels are independent of their predictions, so with r = shared/n and the positive rate π

    P(y=1 | p), observed  =  r · P(y=1 | p) + (1 - r) · π.

Hence the *corrected label* y/r + (1 - 1/r)·π has, at each prediction, the mean that the label has
where features are real, and everything that is linear in labels can be estimated from it. For the
derivation, the assumptions and the width of the intervals, see docs/concepts/evaluation.md.

This holds for predictions that use only features of the passive party. If they also use features of
the active party, a prediction depends on the label even where the other features are someone
else's; see `shuffled_estimate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import metrics

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.evaluation.metrics import Floats, Labels

#: Half the width of a 95 % interval, in standard errors.
WIDTH = 1.959964
#: The largest acceptable half width of the AUC's interval. A wider interval cannot distinguish a
#: useful model from a poor one, and leads to a warning.
WIDEST = 0.05
#: Bootstrap samples for the standard error of ACE.
DRAWS = 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval.

    The value is not clipped to the range of the metric: an AUC above 1 means that `shared` is too
    small for a precise estimate.
    """

    value: float
    standard_error: float

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return WIDTH * self.standard_error

    @property
    def low(self) -> float:
        """The lower end of the interval, clipped at 0, since no metric is negative."""
        return max(self.value - self.half_width, 0.0)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.half_width

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.half_width:.4f}"


@dataclass(frozen=True, slots=True, eq=False)
class CurveEstimate:
    """Per bin: mean prediction, estimated rate of class 1, its standard error, and number of rows.

    A rate with a wide interval can be below 0 or above 1.
    """

    confidence: Floats
    rate: Floats
    standard_error: Floats
    count: Labels

    @property
    def low(self) -> Floats:
        """The lower end of each bin's interval."""
        return self.rate - WIDTH * self.standard_error

    @property
    def high(self) -> Floats:
        """The upper end of each bin's interval."""
        return self.rate + WIDTH * self.standard_error


@dataclass(frozen=True, slots=True, eq=False)
class PrivateEstimate:
    """Estimates of `metrics` as they would be if all `rows` had their real features."""

    auc: Estimate
    ace: Estimate
    log_loss: Estimate
    curve: CurveEstimate
    rows: int
    shared: int


def imprecision(auc: Estimate, rows: int, shared: int) -> str:
    """Return why an estimate of the AUC is too imprecise to use; empty if it is precise enough."""
    if auc.half_width <= WIDEST:
        return ""
    needed = math.ceil(rows * (auc.half_width / WIDEST) ** 2)
    return (
        f"the estimate is too imprecise to use: the AUC is known only to ±{auc.half_width:.2f}, "
        f"because {shared / rows:.1%} of {rows:,} test rows are shared with the peer; "
        f"±{WIDEST} requires about {needed:,} rows, or a larger share"
    )


def private_estimate(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    shared: int,
    *,
    bins: int = metrics.BINS,
    seed: int = 0,
) -> PrivateEstimate:
    """Correct each metric for the rows without real features.

    If all rows are shared, the values equal those of `metrics`.

    Args:
        labels: 0 or 1, of all test rows of the active party.
        predictions: P(y=1) of the same rows.
        shared: how many of them have real features, as the alignment estimates.
        bins: the number of bins of ACE and of the calibration curve.
        seed: the seed of the bootstrap for the standard error of ACE.

    Raises:
        ConfigurationError: no row is shared, a class has fewer than two rows, there are more than
            two classes, or a prediction is not finite.
    """
    values = np.asarray(predictions, dtype=np.float64)
    if values.ndim == 2:
        raise ConfigurationError(
            "the private estimate is for two classes; with more classes, estimate each class "
            "against the rest: labels == c with predictions[:, c]"
        )
    observed = metrics.auc(labels, values)
    positive = np.asarray(labels) == 1
    rows = len(values)
    check_rows(positive, shared)
    if not shared:
        raise ConfigurationError(
            "the test tables have nobody in common, so no prediction is based on real features and "
            "an estimate is impossible"
        )
    r = shared / rows
    auc = Estimate((observed - (1 - r) / 2) / r, delong_error(positive, values) / r)
    ace, curve = _calibration(positive, values, r, bins, np.random.default_rng(seed))
    log_loss = log_loss_estimate(
        positive.astype(np.int64), np.stack((1 - values, values), axis=1), r
    )
    return PrivateEstimate(auc, ace, log_loss, curve, rows, shared)


def check_rows(positive: npt.NDArray[np.bool_], shared: int) -> None:
    """Check that an estimate is possible with these labels and this number of shared rows.

    Raises:
        ConfigurationError: a class has fewer than two rows.
        ValueError: more rows are shared than there are.
    """
    rows = len(positive)
    if not 0 <= shared <= rows:
        raise ValueError(f"{shared} of {rows} rows cannot be shared")
    if min(positive.sum(), (~positive).sum()) < 2:
        raise ConfigurationError("the private estimate needs at least two test rows of each class")


def corrected(observed: Floats, positive_rate: float | Floats, r: float) -> Floats:
    """Return labels, rates or weights corrected to what they would be with real features."""
    return observed / r + (1 - 1 / r) * positive_rate


def delong_error(positive: npt.NDArray[np.bool_], scores: Floats) -> float:
    """Return the standard error of the plain AUC (DeLong et al., 1988), in O(n log n).

    There must be at least two rows of each class.
    """
    ones, zeros = np.sort(scores[positive]), np.sort(scores[~positive])
    return math.sqrt(
        share_below(ones, zeros).var(ddof=1) / len(ones)
        + share_below(zeros, ones).var(ddof=1) / len(zeros)
    )


def share_below(values: Floats, of: Floats) -> Floats:
    """Return, for each value, the share of the sorted `of` below it; equal ones count half."""
    twice = np.searchsorted(of, values, "left") + np.searchsorted(of, values, "right")
    return twice / (2 * len(of))


def log_loss_estimate(classes: Labels, predictions: Floats, r: float) -> Estimate:
    """Estimate the log loss, for any number of classes; predictions are (rows, classes)."""
    influences = log_loss_influences(classes, predictions, r)
    error = influences.std(ddof=1) / math.sqrt(len(influences))
    return Estimate(float(influences.mean()), float(error))


def log_loss_influences(classes: Labels, predictions: Floats, r: float) -> Floats:
    """Return the influence of each row; their mean is the log loss, which is linear in the label.

    The second part is the influence through the positive rate; its mean is 0.
    """
    labels = np.eye(predictions.shape[1])[classes]
    rates = labels.mean(axis=0)
    if_so = -np.log(np.maximum(predictions, 2.0**-53))
    loss = (corrected(labels, rates, r) * if_so).sum(axis=1)
    return np.asarray(loss + (1 - 1 / r) * (labels - rates) @ if_so.mean(axis=0))


def _calibration(
    positive: npt.NDArray[np.bool_],
    predictions: Floats,
    r: float,
    bins: int,
    random: np.random.Generator,
) -> tuple[Estimate, CurveEstimate]:
    """Estimate ACE and the calibration curve.

    Noise moves gaps away from 0 and so biases ACE upwards, more so the smaller r is. The gaps are
    therefore shrunk towards their mean, which the correction for r does not change, until their
    spread is that of real features: the sampling noise of n real rows remains, as in `metrics.ace`,
    and the additional noise is removed.
    """
    plain = metrics.calibration_curve(positive, predictions, bins)
    share, strata = _strata(predictions, len(plain.count))
    count = np.bincount(strata)
    # Jeffreys' prior, half a row of each class: no stratum is without noise.
    smooth = (np.bincount(strata, weights=positive) + 0.5) / (count + 1)
    everyone = np.broadcast_to(count / len(predictions), share.shape)
    rate = float(positive.mean())

    def variance(weights: Floats, rates: Floats) -> Floats:
        """Return the variance of each row of weights @ rates; the strata are independent."""
        return np.asarray(weights**2 @ (rates * (1 - rates) / count))

    real = np.clip(corrected(smooth, rate, r), 0, 1)
    least = variance(share - everyone, real).sum()
    excess = variance(share - everyone, smooth).sum() / r**2 - least

    def ace(rates: Floats) -> Floats:
        return shrunken_ace(rates - plain.confidence, plain.count, excess, least)

    rates = corrected(plain.accuracy, rate, r)
    weights = corrected(share, everyone, r)
    drawn = random.binomial(count, smooth, (DRAWS, len(count))) / count
    error = ace(drawn @ weights.T).std(ddof=1)
    curve = CurveEstimate(plain.confidence, rates, np.sqrt(variance(weights, smooth)), plain.count)
    return Estimate(float(ace(rates)), float(error)), curve


def shrunken_ace(
    gap: Floats, count: npt.NDArray[np.floating | np.integer], excess: float, least: float
) -> Floats:
    """Return the ACE of the gaps of bins (the last axis) after shrinking them towards their mean.

    The sum of squares around the mean is reduced by `excess`, but not below `least`. `count` is the
    number of rows per bin.
    """
    off_mean = gap - np.average(gap, axis=-1, weights=count, keepdims=True)
    spread = np.maximum((off_mean**2).sum(axis=-1, keepdims=True), 1e-300)
    kept = np.minimum(np.maximum(spread - excess, least) / spread, 1)
    return np.asarray(np.abs(gap - (1 - np.sqrt(kept)) * off_mean).mean(axis=-1))


def _strata(predictions: Floats, bins: int) -> tuple[Floats, Labels]:
    """Return the (bins, strata) shares of each stratum in each bin, and the stratum of each row.

    The labels of a stratum always count together. A stratum is a bin without those predictions that
    also occur in the next bin. Each of these predictions is a stratum of its own, whose mean label
    counts in all bins in which it occurs.
    """
    order = np.argsort(predictions, kind="stable")
    ordered = predictions[order]
    ends = np.arange(bins + 1) * len(ordered) // bins
    bin_of = np.repeat(np.arange(bins), np.diff(ends))
    inner = ends[1:-1]
    across = np.unique(ordered[inner][ordered[inner - 1] == ordered[inner]])
    index = np.searchsorted(across, ordered)
    tied = np.isin(ordered, across)
    _, stratum = np.unique(np.where(tied, bins + index, bin_of), return_inverse=True)
    share = np.zeros((bins, stratum.max() + 1))
    np.add.at(share, (bin_of, stratum), 1)
    strata = np.empty_like(stratum)
    strata[order] = stratum
    return share / np.diff(ends)[:, None], strata
