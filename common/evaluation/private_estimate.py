"""How good predictions are, where it is unknown which of them are of real features.

The active party scores its own n test people. `shared` of them have real features; the others, and
nobody knows which, have those of random rows of the passive party's test table. Their labels are
independent of their predictions, so with r = shared/n and the positive rate π

    P(y=1 | p), observed  =  r · P(y=1 | p) + (1 - r) · π.

Hence the *corrected label* y/r + (1 - 1/r)·π has, at each prediction, the mean that the label has
where features are real, and whatever is linear in labels can be estimated from it. The derivation,
what is assumed and how wide the intervals are: docs/concepts/evaluation.md.

It is for predictions that use features of the passive party alone. With features of the active
party's own, a prediction tells of the label even where the rest is another person's.
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

#: Intervals hold the truth with a probability of 95 %: this many standard errors on each side.
WIDTH = 1.959964
#: Of the AUC. A wider interval does not tell a useful model from a poor one, and is warned of.
WIDEST = 0.05
#: Draws of the bootstrap behind the standard error of ACE.
DRAWS = 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its 95 % interval.

    The value is not forced into the range of what it estimates: an AUC above 1 says that `shared`
    is too small to tell.
    """

    value: float
    standard_error: float

    @property
    def half_width(self) -> float:
        return WIDTH * self.standard_error

    @property
    def low(self) -> float:
        """At least 0, as all that is estimated here."""
        return max(self.value - self.half_width, 0.0)

    @property
    def high(self) -> float:
        return self.value + self.half_width

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.half_width:.4f}"


@dataclass(frozen=True, slots=True, eq=False)
class CurveEstimate:
    """Per bin: the mean prediction, the estimated frequency of class 1, its error, and the rows.

    A rate can be below 0 or above 1, where its interval is wide.
    """

    confidence: Floats
    rate: Floats
    standard_error: Floats
    count: Labels

    @property
    def low(self) -> Floats:
        return self.rate - WIDTH * self.standard_error

    @property
    def high(self) -> Floats:
        return self.rate + WIDTH * self.standard_error


@dataclass(frozen=True, slots=True, eq=False)
class PrivateEstimate:
    """What `metrics` would say if all `rows` had their real features."""

    auc: Estimate
    ace: Estimate
    log_loss: Estimate
    curve: CurveEstimate
    rows: int
    shared: int

    @property
    def r(self) -> float:
        """The fraction of rows with real features: a ratio of counts, so it has no error."""
        return self.shared / self.rows

    @property
    def warning(self) -> str:
        """Why the estimate is too vague to use; empty where it is not."""
        return vagueness(self.auc, self.rows, self.shared)


def vagueness(auc: Estimate, rows: int, shared: int) -> str:
    """Why an estimate of the AUC is too vague to use; empty where it is not."""
    if auc.half_width <= WIDEST:
        return ""
    needed = math.ceil(rows * (auc.half_width / WIDEST) ** 2)
    return (
        f"the estimate is too vague to use: the AUC is known to ±{auc.half_width:.2f} only, as "
        f"{shared / rows:.1%} of {rows:,} test rows are shared with the peer; for "
        f"±{WIDEST} it takes about {needed:,} rows, or a larger share"
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

    `labels` are 0 or 1 and `predictions` P(y=1), of all test rows of the active party; `shared` of
    them, as counted by the alignment (`Sizes.shared`), have real features. Where all have, the
    values are those of `metrics`. `seed` is that of the bootstrap behind the error of ACE.

    Raises:
        ConfigurationError: no row is shared, a class has fewer than two rows, there are more than
            two classes, or a prediction is not finite.
    """
    values = np.asarray(predictions, dtype=np.float64)
    if values.ndim == 2:
        raise ConfigurationError(
            "the private estimate is for two classes; with more, estimate each class against the "
            "rest: labels == c with predictions[:, c]"
        )
    observed = metrics.auc(labels, values)
    positive = np.asarray(labels) == 1
    rows = len(values)
    if not 0 <= shared <= rows:
        raise ValueError(f"{shared} of {rows} rows cannot be shared")
    if not shared:
        raise ConfigurationError(
            "the test tables have no person in common, so no prediction is of real features and "
            "the estimate is impossible"
        )
    if min(positive.sum(), (~positive).sum()) < 2:
        raise ConfigurationError("the private estimate needs at least two test rows of each class")
    r = shared / rows
    auc = Estimate((observed - (1 - r) / 2) / r, delong_error(positive, values) / r)
    ace, curve = _calibration(positive, values, r, bins, np.random.default_rng(seed))
    log_loss = log_loss_estimate(
        positive.astype(np.int64), np.stack((1 - values, values), axis=1), r
    )
    return PrivateEstimate(auc, ace, log_loss, curve, rows, shared)


def corrected(observed: Floats, positive_rate: float | Floats, r: float) -> Floats:
    """Labels or rates as they would be, on average, with real features; or weights for these."""
    return observed / r + (1 - 1 / r) * positive_rate


def delong_error(positive: npt.NDArray[np.bool_], scores: Floats) -> float:
    """Standard error of the plain AUC (DeLong et al., 1988), in O(n log n).

    There are at least two rows of each class.
    """
    ones, zeros = np.sort(scores[positive]), np.sort(scores[~positive])
    return math.sqrt(
        share_below(ones, zeros).var(ddof=1) / len(ones)
        + share_below(zeros, ones).var(ddof=1) / len(zeros)
    )


def share_below(values: Floats, of: Floats) -> Floats:
    """For each value, the share of the sorted `of` below it; equal ones count half."""
    twice = np.searchsorted(of, values, "left") + np.searchsorted(of, values, "right")
    return twice / (2 * len(of))


def log_loss_estimate(classes: Labels, predictions: Floats, r: float) -> Estimate:
    """The loss is linear in the label; its error comes from each row's influence on the mean.

    Of any number of classes; predictions are (rows, classes).
    """
    labels = np.eye(predictions.shape[1])[classes]
    rates = labels.mean(axis=0)
    if_so = -np.log(np.maximum(predictions, 2.0**-53))
    loss = (corrected(labels, rates, r) * if_so).sum(axis=1)
    through_rates = (1 - 1 / r) * (labels - rates) @ if_so.mean(axis=0)
    error = (loss + through_rates).std(ddof=1) / math.sqrt(len(loss))
    return Estimate(float(loss.mean()), float(error))


def _calibration(
    positive: npt.NDArray[np.bool_],
    predictions: Floats,
    r: float,
    bins: int,
    random: np.random.Generator,
) -> tuple[Estimate, CurveEstimate]:
    """ACE and the curve.

    Noise moves gaps away from 0, so that ACE is too high, the more so the smaller r is. The gaps
    are therefore drawn towards their mean, which the correction for r leaves alone, until they
    spread as much as with real features: the sampling noise of n real rows stays, as in
    `metrics.ace`, and the rest of the noise goes.
    """
    plain = metrics.calibration_curve(positive, predictions, bins)
    share, strata = _strata(predictions, len(plain.count))
    count = np.bincount(strata)
    # Jeffreys' half a row of each class: no stratum is without noise.
    smooth = (np.bincount(strata, weights=positive) + 0.5) / (count + 1)
    everyone = np.broadcast_to(count / len(predictions), share.shape)
    rate = float(positive.mean())

    def variance(weights: Floats, rates: Floats) -> Floats:
        """That of each row of weights @ rates; the strata are independent."""
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
    """ACE of gaps over bins (the last axis) of so many rows, drawn towards their mean.

    Their squares around it are to add up to `excess` less, but at least to `least`.
    """
    off_mean = gap - np.average(gap, axis=-1, weights=count, keepdims=True)
    spread = np.maximum((off_mean**2).sum(axis=-1, keepdims=True), 1e-300)
    kept = np.minimum(np.maximum(spread - excess, least) / spread, 1)
    return np.asarray(np.abs(gap - (1 - np.sqrt(kept)) * off_mean).mean(axis=-1))


def _strata(predictions: Floats, bins: int) -> tuple[Floats, Labels]:
    """Rows whose labels bins count together: (bins, strata) shares, and each row's stratum.

    A stratum is a bin, without equal predictions that lie across its ends: each such prediction is
    a stratum by itself, whose mean label counts in all the bins where it lies.
    """
    order = np.argsort(predictions, kind="stable")
    ordered = predictions[order]
    ends = np.arange(bins + 1) * len(ordered) // bins
    bin_of = np.repeat(np.arange(bins), np.diff(ends))
    inner = ends[1:-1]
    across = np.unique(ordered[inner][ordered[inner - 1] == ordered[inner]])
    place = np.searchsorted(across, ordered)
    tied = np.isin(ordered, across)
    _, stratum = np.unique(np.where(tied, bins + place, bin_of), return_inverse=True)
    share = np.zeros((bins, stratum.max() + 1))
    np.add.at(share, (bin_of, stratum), 1)
    strata = np.empty_like(stratum)
    strata[order] = stratum
    return share / np.diff(ends)[:, None], strata
