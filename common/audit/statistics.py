"""How well scores tell real from synthetic: AUC and true positive rates, with intervals.

Intervals are those of a bootstrap that draws UIDs anew, the real and the synthetic ones apart. For
them, not for the figures, neighbouring scores count as equal if there are many, except at both
ends. Among equal scores both kinds come at an even pace, as if an attacker chose at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Counts = npt.NDArray[np.int64]

#: False positive rates at which true positives are counted.
FALSE_POSITIVE_RATES = (0.01, 0.001)

#: The share of bootstrap samples that an interval covers.
CONFIDENCE = 0.95

#: Scores that the bootstrap tells apart: this many UIDs at each end, and this many groups between.
_ENDS, _GROUPS = 500, 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def folded(self) -> Estimate:
        """That of max(x, 1 - x): an attacker may turn its scores round."""
        value = max(self.value, 1 - self.value)
        ends = max(self.low, 1 - self.low), max(self.high, 1 - self.high)
        low = 0.5 if self.low <= 0.5 <= self.high else min(ends)
        return Estimate(value, low, max(ends))


@dataclass(frozen=True, slots=True)
class AttackResult:
    """What an attack achieves. All figures are NaN unless it scored UIDs of both kinds."""

    attack: str
    #: UIDs of each kind that have a score.
    real: int
    synthetic: int
    #: Probability that a real UID scores higher than a synthetic one; not folded.
    auc: Estimate
    #: By false positive rate: the share of real UIDs found by the highest scores, if so many of the
    #: synthetic ones are taken for real.
    finds_real: Mapping[float, Estimate]
    #: The other way round, by the lowest scores.
    finds_synthetic: Mapping[float, Estimate]

    @property
    def folded_auc(self) -> Estimate:
        return self.auc.folded

    def true_positive_rate(self, rate: float) -> Estimate:
        """The higher of both directions at this false positive rate."""
        return max(self.finds_real[rate], self.finds_synthetic[rate], key=lambda e: e.value)


def evaluate(
    attack: str,
    scores: Floats,
    is_real: npt.NDArray[np.bool_],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> AttackResult:
    """Compare scores, higher for real, with the truth. UIDs whose score is NaN are left out.

    Raises:
        ValueError: the two are not of one length.
    """
    if scores.shape != is_real.shape or scores.ndim != 1:
        raise ValueError(f"scores {scores.shape} and truth {is_real.shape} do not fit")
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
    estimates = [Estimate(*map(float, row)) for row in zip(figures[0], low, high, strict=True)]
    rates = FALSE_POSITIVE_RATES
    return AttackResult(
        attack,
        len(real),
        len(synthetic),
        estimates[0],
        dict(zip(rates, estimates[1 : 1 + len(rates)], strict=True)),
        dict(zip(rates, estimates[1 + len(rates) :], strict=True)),
    )


def _folded_auc(result: AttackResult) -> float:
    return result.folded_auc.value


def strongest(
    results: Iterable[AttackResult], figure: Callable[[AttackResult], float] = _folded_auc
) -> AttackResult:
    """The one with the highest figure; those that could not be judged do not count.

    Raises:
        ValueError: none could.
    """
    judged = [result for result in results if not np.isnan(figure(result))]
    if not judged:
        raise ValueError("no attack scored both real and synthetic UIDs")
    return max(judged, key=figure)


def _figures(real: Counts, synthetic: Counts) -> Floats:
    """All figures of each sample, from its numbers of UIDs at each score, by rising score."""
    columns = [_aucs(real, synthetic)]
    columns += [_rates(real[:, ::-1], synthetic[:, ::-1], rate) for rate in FALSE_POSITIVE_RATES]
    columns += [_rates(synthetic, real, rate) for rate in FALSE_POSITIVE_RATES]
    return np.stack(columns, axis=1)


def _aucs(real: Counts, synthetic: Counts) -> Floats:
    below = synthetic.cumsum(axis=1) - synthetic / 2
    pairs: Floats = real.sum(axis=1) * synthetic.sum(axis=1).astype(np.float64)
    return np.asarray((real * below).sum(axis=1) / pairs, dtype=np.float64)


def _rates(wanted: Counts, others: Counts, rate: float) -> Floats:
    """Share of `wanted` before more than `rate` of `others`, the first score first.

    Within one score both come at an even pace.
    """
    found = np.pad(wanted.cumsum(axis=1), ((0, 0), (1, 0)))
    wrong = np.pad(others.cumsum(axis=1), ((0, 0), (1, 0)))
    allowed = rate * wrong[:, -1] + 1e-9  # whole numbers must not be missed by rounding
    last = (wrong <= allowed[:, None]).sum(axis=1) - 1
    at = np.arange(len(found))
    step = (allowed - wrong[at, last]) / (wrong[at, last + 1] - wrong[at, last])
    reached = found[at, last] + step * (found[at, last + 1] - found[at, last])
    return np.asarray(reached / found[:, -1], dtype=np.float64)


def _redrawn(random: np.random.Generator, counts: Counts, samples: int) -> Counts:
    """As many UIDs as before, each drawn anew from all: how many are at each score, by sample."""
    return random.multinomial(counts.sum(), counts / counts.sum(), size=samples)


def _grouped(real: Counts, synthetic: Counts) -> tuple[Counts, Counts]:
    """The numbers of UIDs at each score, with neighbouring scores taken together between the ends.

    In a group are so few that where a rate falls within it does not matter.
    """
    both = real + synthetic
    before = both.cumsum() - both
    inner = both.sum() - 2 * _ENDS
    # Of the UIDs before a score, how many groups are full.
    group = np.clip((before - _ENDS) / max(inner, 1), 0, 1) * _GROUPS // 1
    outside = (before < _ENDS) | (before >= _ENDS + inner)
    starts = np.flatnonzero(outside | (np.diff(group, prepend=-1) != 0))
    return np.add.reduceat(real, starts), np.add.reduceat(synthetic, starts)
