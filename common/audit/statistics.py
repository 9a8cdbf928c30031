"""How well scores separate real from synthetic UIDs: AUC and true positive rates, with intervals.

Intervals come from a bootstrap that resamples real and synthetic UIDs separately. For the
intervals only, neighbouring scores are grouped if there are many, except at both ends. Equal scores
count as if they were in random order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Counts = npt.NDArray[np.int64]

#: False positive rates at which true positive rates are computed.
FALSE_POSITIVE_RATES = (0.01, 0.001)

#: The share of bootstrap samples that an interval covers.
CONFIDENCE = 0.95

#: The bootstrap distinguishes this many UIDs at each end, and this many groups in between.
_ENDS, _GROUPS = 500, 1000


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A value and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Format the value with its interval, such as 0.53 (0.51-0.55) with an en dash."""
        return f"{self.value:.2f} ({self.low:.2f}\N{EN DASH}{self.high:.2f})"

    @property
    def folded(self) -> IntervalEstimate:
        """The estimate of max(x, 1 - x), since an attacker may invert its scores."""
        value = max(self.value, 1 - self.value)
        ends = max(self.low, 1 - self.low), max(self.high, 1 - self.high)
        low = 0.5 if self.low <= 0.5 <= self.high else min(ends)
        return IntervalEstimate(value, low, max(ends))


@dataclass(frozen=True, slots=True)
class AttackResult:
    """How well an attack does. All values are NaN unless it scored UIDs of both kinds."""

    attack: str
    #: The number of UIDs of each kind that have a score.
    real: int
    synthetic: int
    #: The probability that a real UID scores higher than a synthetic one; not folded.
    auc: IntervalEstimate
    #: By false positive rate: the share of real UIDs found by the highest scores, while this share
    #: of the synthetic ones is taken for real.
    finds_real: Mapping[float, IntervalEstimate]
    #: The same for synthetic UIDs, found by the lowest scores.
    finds_synthetic: Mapping[float, IntervalEstimate]

    @property
    def folded_auc(self) -> IntervalEstimate:
        """The AUC folded at 0.5: max(AUC, 1 - AUC)."""
        return self.auc.folded

    def true_positive_rate(self, rate: float) -> IntervalEstimate:
        """Return the higher of the two directions at this false positive rate."""
        return max(self.finds_real[rate], self.finds_synthetic[rate], key=lambda e: e.value)


def evaluate(
    attack: str,
    scores: Floats,
    is_real: npt.NDArray[np.bool_],
    *,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> AttackResult:
    """Compare scores, which are higher for real UIDs, with the truth. NaN scores are left out.

    Args:
        attack: the attack's name, for the result.
        scores: one per UID.
        is_real: one per UID.
        samples: the number of bootstrap samples.
        seed: the seed of the bootstrap.
        confidence: the probability that an interval covers the truth. Above `CONFIDENCE` the
            intervals are those of a normal distribution, since quantiles would need many more
            samples. Its standard deviation is DeLong's for the AUC. For rates it is that of the
            samples, or the one that their quantiles have, whichever is larger.

    Raises:
        ValueError: `scores` and `is_real` differ in length.
    """
    if scores.shape != is_real.shape or scores.ndim != 1:
        raise ValueError(f"shapes of scores {scores.shape} and truth {is_real.shape} differ")
    scored = ~np.isnan(scores)
    values, truth = scores[scored], is_real[scored]
    levels, level = np.unique(values, return_inverse=True)
    real, synthetic = level[truth], level[~truth]
    if not (len(real) and len(synthetic)):
        figures = np.full((1, 1 + 2 * len(FALSE_POSITIVE_RATES)), np.nan)
        drawn = figures
    else:
        size = len(levels)
        counts = np.bincount(real, minlength=size), np.bincount(synthetic, minlength=size)
        figures = _figures(*(count[None] for count in counts))
        random = np.random.default_rng(seed)
        drawn = _figures(*(_redrawn(random, count, samples) for count in _grouped(*counts)))
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside], axis=0)
    if confidence > CONFIDENCE:
        deviation = _auc_deviation(real, synthetic), drawn[:, 1:].std(axis=0)
        low, high = _widened(figures[0], low, high, deviation, confidence)
    estimates = [
        IntervalEstimate(*map(float, row)) for row in zip(figures[0], low, high, strict=True)
    ]
    rates = FALSE_POSITIVE_RATES
    return AttackResult(
        attack,
        len(real),
        len(synthetic),
        estimates[0],
        dict(zip(rates, estimates[1 : 1 + len(rates)], strict=True)),
        dict(zip(rates, estimates[1 + len(rates) :], strict=True)),
    )


def _widened(
    values: Floats, low: Floats, high: Floats, deviation: tuple[float, Floats], confidence: float
) -> tuple[Floats, Floats]:
    """Return intervals of higher confidence, within [0, 1], on both sides of the values.

    The first value is the AUC, the others are rates.
    """
    wanted, given = (NormalDist().inv_cdf((1 + each) / 2) for each in (confidence, CONFIDENCE))
    of_auc, of_rates = deviation
    below, above = (
        np.append(of_auc, np.maximum(side[1:] / given, of_rates)) * wanted
        for side in (values - low, high - values)
    )
    return np.clip(values - below, 0, 1), np.clip(values + above, 0, 1)


def _auc_deviation(real: Counts, synthetic: Counts) -> float:
    """Return the standard deviation of the AUC (DeLong, DeLong and Clarke-Pearson, 1988).

    Args:
        real: the level of the score of each real UID.
        synthetic: the same for each synthetic UID.
    """
    if min(len(real), len(synthetic)) < 2:
        return float("nan")
    variance = 0.0
    for ours, others in ((real, synthetic), (synthetic, real)):
        ranked = np.sort(others)
        below = np.searchsorted(ranked, ours, "left") + np.searchsorted(ranked, ours, "right")
        variance += float((below / (2 * len(others))).var(ddof=1)) / len(ours)
    return math.sqrt(variance)


def _figures(real: Counts, synthetic: Counts) -> Floats:
    """Return all figures of each sample, given its counts of UIDs by rising score."""
    columns = [_aucs(real, synthetic)]
    columns += [_rates(real[:, ::-1], synthetic[:, ::-1], rate) for rate in FALSE_POSITIVE_RATES]
    columns += [_rates(synthetic, real, rate) for rate in FALSE_POSITIVE_RATES]
    return np.stack(columns, axis=1)


def _aucs(real: Counts, synthetic: Counts) -> Floats:
    below = synthetic.cumsum(axis=1) - synthetic / 2
    pairs: Floats = real.sum(axis=1) * synthetic.sum(axis=1).astype(np.float64)
    return np.asarray((real * below).sum(axis=1) / pairs, dtype=np.float64)


def _rates(wanted: Counts, others: Counts, rate: float) -> Floats:
    """Return the share of `wanted` found before more than `rate` of `others`, from the first score.

    Within one score the two kinds are interpolated linearly.
    """
    found = np.pad(wanted.cumsum(axis=1), ((0, 0), (1, 0)))
    wrong = np.pad(others.cumsum(axis=1), ((0, 0), (1, 0)))
    allowed = rate * wrong[:, -1] + 1e-9  # rounding must not miss whole numbers
    last = (wrong <= allowed[:, None]).sum(axis=1) - 1
    at = np.arange(len(found))
    step = (allowed - wrong[at, last]) / (wrong[at, last + 1] - wrong[at, last])
    reached = found[at, last] + step * (found[at, last + 1] - found[at, last])
    return np.asarray(reached / found[:, -1], dtype=np.float64)


def _redrawn(random: np.random.Generator, counts: Counts, samples: int) -> Counts:
    """Return, per bootstrap sample, the counts of UIDs at each score."""
    return random.multinomial(counts.sum(), counts / counts.sum(), size=samples)


def _grouped(real: Counts, synthetic: Counts) -> tuple[Counts, Counts]:
    """Return the counts at each score, with neighbouring scores between the ends grouped.

    Groups are so small that it does not matter where within a group a rate falls.
    """
    both = real + synthetic
    before = both.cumsum() - both
    inner = both.sum() - 2 * _ENDS
    # The number of groups that the UIDs before a score fill.
    group = np.clip((before - _ENDS) / max(inner, 1), 0, 1) * _GROUPS // 1
    outside = (before < _ENDS) | (before >= _ENDS + inner)
    starts = np.flatnonzero(outside | (np.diff(group, prepend=-1) != 0))
    return np.add.reduceat(real, starts), np.add.reduceat(synthetic, starts)
