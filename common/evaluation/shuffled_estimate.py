"""The private estimate for predictions that also use features of the active party.

Such a prediction depends on the label even where the peer's features are someone else's, so the
contribution of rows without real features is not known in advance. But it can be measured: give
each of the active party's people the embedding of a random other one. Such a *shuffled* prediction
and its label have the same joint distribution as those of a row with a donor's features. So with
the fraction r of real rows, and for everything that is a mean over rows,

    observed  =  r · real + (1 - r) · shuffled,

and real = (observed - (1 - r) · shuffled) / r. A sum over real rows is a sum over observed rows
with weight 1/r plus a sum over shuffled rows with weight -(1 - r)/r. AUC is a mean over pairs of
rows, and the equation is solved for pairs. For the derivation, see docs/concepts/evaluation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import metrics
from florist.common.evaluation.private_estimate import (
    DRAWS,
    CurveEstimate,
    Estimate,
    PrivateEstimate,
    check_rows,
    share_below,
    shrunken_ace,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.evaluation.metrics import Floats

    Integers = npt.NDArray[np.int64]


def shuffles(rows: int, times: int, random: np.random.Generator) -> Integers:
    """Return for each row the other rows whose embeddings it is to be scored with: (rows, times).

    Each row's embedding is used equally often. There must be at least two rows; with fewer than
    `times` + 1 rows there are fewer shuffles.
    """
    times = min(times, rows - 1)
    order = random.permutation(rows)
    steps = 1 + random.choice(rows - 1, times, replace=False)
    partners = np.empty((rows, times), dtype=np.int64)
    for column, step in enumerate(steps):
        partners[order, column] = np.roll(order, step)
    return partners


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shuffled:
    """Predictions for each row with the embeddings of others, and the rows of these others.

    Both are (rows, times). With more than two classes predictions are (rows, times, classes).
    """

    predictions: Floats
    partners: Integers

    def of_class(self, number: int) -> Shuffled:
        """Return the predictions of one class against the rest."""
        return Shuffled(self.predictions[:, :, number], self.partners)

    def by_class(self) -> Shuffled:
        """Return the predictions of two classes in the shape for several classes."""
        both = np.stack((1 - self.predictions, self.predictions), axis=2)
        return Shuffled(both, self.partners)


def shuffled_estimate(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    shuffled: Shuffled,
    shared: int,
    *,
    bins: int = metrics.BINS,
    seed: int = 0,
) -> PrivateEstimate:
    """Estimate the metrics of predictions for two classes that also use own features.

    Args:
        labels: 0 or 1, of all test rows of the active party.
        predictions: P(y=1) of the same rows.
        shuffled: predictions for the same rows with the embeddings of others.
        shared: how many rows have real features, as the alignment estimates.
        bins: the number of bins of ACE and of the calibration curve.
        seed: the seed of the random draws for the standard error of ACE.

    Raises:
        ConfigurationError: fewer than two rows are shared, a class has fewer than two rows, or a
            prediction is not finite.
    """
    values = np.asarray(predictions, dtype=np.float64)
    metrics.auc(labels, values)  # checks both
    y = np.asarray(labels, dtype=np.float64)
    rows = len(y)
    check_rows(y == 1, shared)
    if shared < 2:
        raise ConfigurationError(
            "the test tables have too few people in common: with features of the active party, "
            "the estimate needs at least two"
        )
    mixed = Mixed(y, values, shuffled, shared / rows)
    ace, curve = _calibration(mixed, bins, np.random.default_rng(seed))
    log_loss = log_loss_estimate(
        y.astype(np.int64), np.stack((1 - values, values), axis=1), shuffled.by_class(), mixed.r
    )
    return PrivateEstimate(_auc(mixed, shared), ace, log_loss, curve, rows, shared)


class Mixed:
    """Observed and shuffled rows with weights such that weighted sums are means over real rows."""

    def __init__(
        self, labels: Floats | Integers, observed: Floats, shuffled: Shuffled, r: float
    ) -> None:
        self.r = r
        self.y = labels
        self.observed = observed
        self.shuffled = np.asarray(shuffled.predictions, dtype=np.float64)
        if not np.isfinite(self.shuffled).all():
            raise ConfigurationError(
                "some predictions are NaN or infinite: training diverged; try a smaller learning "
                "rate"
            )
        self.partners = shuffled.partners
        self.rows, self.times = self.partners.shape

    def elements(self, of: Floats, of_shuffled: Floats) -> tuple[Floats, Floats]:
        """Return what each observed and each shuffled row adds to a mean over real rows."""
        share = 1 / (self.r * self.rows)
        return share * of, -(1 - self.r) * share / self.times * of_shuffled

    def covariance(
        self, observed: Floats, shuffled: Floats, assigned: _Bins | None = None
    ) -> Floats:
        """Return the covariance matrix, by bin, of sums of elements (rows,) and (rows, times).

        Rows are independent, but a shuffled element depends on two rows. So all products of
        elements that have a row in common are added up: those of each row's elements, minus the
        squares of shuffled elements, which would count twice.
        """
        of, of_shuffled, bins = assigned or _Bins.single(self.rows, self.times)
        everyone = np.arange(self.rows)
        by_row, twice = np.zeros((self.rows, bins)), np.zeros((bins, bins))
        by_row[everyone, of] = observed
        for column, element in enumerate(shuffled.T):
            bin_of, partner = of_shuffled[:, column], self.partners[:, column]
            by_row[everyone, bin_of] += element
            by_row[partner, bin_of] += element  # each partner occurs once per column
            mean = np.bincount(bin_of, element, bins) / self.rows
            twice += np.diag(np.bincount(bin_of, element**2, bins))
            twice -= self.rows * np.outer(mean, mean)
        by_row -= by_row.mean(axis=0)
        return np.asarray(by_row.T @ by_row - twice)

    def error(self, observed: Floats, shuffled: Floats, direct: Floats | float = 0.0) -> float:
        """Return the standard error of the sum of all elements.

        `direct` is subtracted from it: what each row adds to a metric that is estimated from the
        same rows and needs no correction.
        """
        variance = float(self.covariance(observed - direct, shuffled)[0, 0])
        # With few rows the difference can be below 0. It is never below the variance of real rows.
        real = self.r * observed - direct
        return math.sqrt(max(variance, float(((real - real.mean()) ** 2).sum())))


class _Bins(NamedTuple):
    """The bin of each observed row, (rows,), and of each shuffled one, (rows, times)."""

    observed: Integers
    shuffled: Integers
    #: The number of bins.
    number: int

    @classmethod
    def single(cls, rows: int, times: int) -> _Bins:
        """Return one bin with all rows."""
        return cls(np.zeros(rows, dtype=np.int64), np.zeros((rows, times), dtype=np.int64), 1)


def log_loss_estimate(
    classes: Integers, predictions: Floats, shuffled: Shuffled, r: float
) -> Estimate:
    """Estimate the log loss, for any number of classes; predictions are (rows, classes)."""
    mixed = Mixed(classes, predictions, shuffled, r)
    observed, others = log_loss_elements(mixed)
    return Estimate(float(observed.sum() + others.sum()), mixed.error(observed, others))


def log_loss_elements(mixed: Mixed) -> tuple[Floats, Floats]:
    """Return what each observed and each shuffled row adds to the log loss; labels are classes."""

    def losses(given: Floats) -> Floats:
        return np.asarray(-np.log(np.maximum(given, 2.0**-53)))

    classes, rows = mixed.y.astype(np.int64), np.arange(mixed.rows)
    return mixed.elements(
        losses(mixed.observed[rows, classes]),
        losses(mixed.shuffled[rows[:, None], np.arange(mixed.times), classes[:, None]]),
    )


def _auc(mixed: Mixed, shared: int) -> Estimate:
    return Estimate(auc_value(mixed, shared), mixed.error(*auc_elements(mixed)))


def auc_value(mixed: Mixed, shared: int) -> float:
    """Estimate the AUC from pairs of a positive and a negative row, each observed or shuffled."""
    r, rows = mixed.r, mixed.rows
    one = mixed.y == 1
    sides = [np.sort(mixed.observed[~one]), np.sort(mixed.shuffled[~one], axis=None)]
    observed, shuffled = mixed.observed[one], mixed.shuffled[one]
    both, half = share_below(observed, sides[0]).mean(), share_below(observed, sides[1]).mean()
    other_half = share_below(shuffled.ravel(), sides[0]).mean()
    neither = share_below(shuffled.ravel(), sides[1]).mean()
    # The probability that two random rows are both real, given how many are.
    q = shared * (shared - 1) / (rows * (rows - 1))
    halves = (half + other_half - 2 * (1 - r) * neither) / r
    return float((both - (r - q) * halves - (1 - 2 * r + q) * neither) / q)


def auc_elements(mixed: Mixed) -> tuple[Floats, Floats]:
    """Return what each observed and each shuffled row adds to the deviation of the AUC."""
    r, rows = mixed.r, mixed.rows
    one = mixed.y == 1

    def beats(p: Floats, observed: Floats, shuffled: Floats) -> Floats:
        """Return the share of real rows of the other class below p."""
        return (share_below(p, observed) - (1 - r) * share_below(p, shuffled)) / r

    sides = [np.sort(mixed.observed[~one]), np.sort(mixed.shuffled[~one], axis=None)]
    ones = [np.sort(mixed.observed[one]), np.sort(mixed.shuffled[one], axis=None)]
    rank, shuffled_rank = np.empty(rows), np.empty_like(mixed.shuffled)
    for chosen, others, share, sign in (
        (one, sides, one.mean(), 1),
        (~one, ones, (~one).mean(), -1),
    ):
        # Centred by class, since the number of rows of each class is fixed.
        for ranks, values in ((rank, mixed.observed), (shuffled_rank, mixed.shuffled)):
            found = beats(values[chosen].ravel(), *others).reshape(values[chosen].shape)
            ranks[chosen] = sign * (found - found.mean(axis=0)) / share
    return mixed.elements(rank, shuffled_rank)


def _calibration(
    mixed: Mixed, bins: int, random: np.random.Generator
) -> tuple[Estimate, CurveEstimate]:
    """Estimate ACE and the curve, with about equally many real rows per bin.

    Gaps are sums of elements.
    """
    ends = _ends(mixed, min(bins, mixed.rows))
    bins = len(ends) + 1
    assigned = _Bins(
        np.searchsorted(ends, mixed.observed), np.searchsorted(ends, mixed.shuffled), bins
    )

    def per_bin(of: Floats, of_shuffled: Floats) -> Floats:
        observed, shuffled = mixed.elements(of, of_shuffled)
        return np.asarray(
            np.bincount(assigned.observed, observed, bins)
            + np.bincount(assigned.shuffled.ravel(), shuffled.ravel(), bins)
        )

    off, shuffled_off = mixed.y - mixed.observed, mixed.y[:, None] - mixed.shuffled
    mass = np.maximum(per_bin(np.ones_like(off), np.ones_like(shuffled_off)), 0.2 / bins)
    gap = per_bin(off, shuffled_off) / mass
    confidence = np.clip(per_bin(mixed.observed, mixed.shuffled) / mass, 0, 1)
    noise = mixed.covariance(*mixed.elements(off, shuffled_off), assigned) / np.outer(mass, mass)
    squares = per_bin(off**2, shuffled_off**2)
    least = np.maximum(squares / mass - mass * gap**2, 0) / (mass * mixed.rows)
    mass = mass / mass.sum()
    variance = np.maximum(np.diag(noise), least)
    excess = float((variance - least).sum())
    error = np.sqrt(variance)
    drawn = gap + _normals(noise, random)
    value = shrunken_ace(gap, mass, excess, float(least.sum()))
    spread = shrunken_ace(drawn, mass, excess, float(least.sum())).std(ddof=1)
    count = np.diff(np.round(np.concatenate(([0], np.cumsum(mass))) * mixed.rows)).astype(np.int64)
    curve = CurveEstimate(confidence, confidence + gap, error, count)
    return Estimate(float(value), float(spread)), curve


def _ends(mixed: Mixed, bins: int) -> Floats:
    """Return the predictions at which bins end, except the last bin."""
    values = np.concatenate((mixed.observed, mixed.shuffled.ravel()))
    observed, shuffled = mixed.elements(np.ones_like(mixed.observed), np.ones_like(mixed.shuffled))
    order = np.argsort(values, kind="stable")
    values = values[order]
    below = np.maximum.accumulate(np.cumsum(np.concatenate((observed, shuffled.ravel()))[order]))
    wanted = np.arange(1, bins) / bins
    return np.unique(values[np.minimum(np.searchsorted(below, wanted - 1e-9), len(values) - 1)])


def _normals(covariance: Floats, random: np.random.Generator) -> Floats:
    """Return (DRAWS, k) normal samples with mean 0; negative eigenvalues are noise and become 0."""
    values, vectors = np.linalg.eigh(covariance)
    scaled = vectors * np.sqrt(np.maximum(values, 0))
    return np.asarray(random.standard_normal((DRAWS, len(values))) @ scaled.T)
