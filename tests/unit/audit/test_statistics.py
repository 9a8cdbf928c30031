"""Statistics of attacks against slow, simple versions."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.audit import statistics
from florist.common.audit.statistics import (
    FALSE_POSITIVE_RATES,
    AttackResult,
    IntervalEstimate,
    evaluate,
)

#: Few distinct values, so that ties are the rule.
SCORED = st.lists(
    st.tuples(st.booleans(), st.integers(0, 8).map(float)), min_size=2, max_size=300
).filter(lambda rows: len({real for real, _ in rows}) == 2)


def result_of(rows: list[tuple[bool, float]], samples: int = 2) -> AttackResult:
    truth, scores = (np.array(column) for column in zip(*rows, strict=True))
    return evaluate("any", scores, truth, samples=samples)


def slow_auc(rows: list[tuple[bool, float]]) -> float:
    real = [score for is_real, score in rows if is_real]
    synthetic = [score for is_real, score in rows if not is_real]
    pairs = [(r > s) + 0.5 * (r == s) for r in real for s in synthetic]
    return sum(pairs) / len(pairs)


def slow_rate(rows: list[tuple[bool, float]], rate: float) -> float:
    """Return the highest true positive rate up to `rate`, interpolated between all thresholds."""
    real = [score for is_real, score in rows if is_real]
    synthetic = [score for is_real, score in rows if not is_real]
    thresholds = [math.inf, *sorted({score for _, score in rows}, reverse=True)]
    corners = [
        (
            sum(s >= threshold for s in synthetic) / len(synthetic),
            sum(r >= threshold for r in real) / len(real),
        )
        for threshold in thresholds
    ]
    best = 0.0
    for (x0, y0), (x1, y1) in pairwise(corners):
        if x1 <= rate:
            best = y1
        elif x0 <= rate:
            best = y0 + (rate - x0) / (x1 - x0) * (y1 - y0)
    return best


@settings(deadline=None)
@given(SCORED)
def test_figures_equal_brute_force(rows: list[tuple[bool, float]]) -> None:
    result = result_of(rows)
    turned = [(not is_real, -score) for is_real, score in rows]
    assert result.auc.value == pytest.approx(slow_auc(rows))
    for rate in FALSE_POSITIVE_RATES:
        assert result.finds_real[rate].value == pytest.approx(slow_rate(rows, rate), abs=1e-6)
        assert result.finds_synthetic[rate].value == pytest.approx(
            slow_rate(turned, rate), abs=1e-6
        )


def test_whole_numbers_of_false_positives_are_allowed() -> None:
    scores = np.arange(1000.0)
    is_real = np.ones(1000, dtype=bool)
    is_real[[*range(97), 700, 800, 900]] = False  # 100 in total, so that 1% is one
    result = evaluate("any", scores, is_real, samples=2)
    assert result.finds_real[0.01].value == pytest.approx((1000 - 801 - 1) / 900)
    assert result.finds_real[0.001].value == pytest.approx((1000 - 901) / 900)


def test_equal_scores_are_chance() -> None:
    result = evaluate("any", np.zeros(50), np.arange(50) < 20, samples=20)
    assert result.auc == IntervalEstimate(0.5, 0.5, 0.5)
    assert result.true_positive_rate(0.01).value == pytest.approx(0.01)


def test_perfect_scores() -> None:
    is_real = np.arange(300) < 100
    result = evaluate("any", is_real.astype(float), is_real)
    assert result.auc == result.folded_auc == IntervalEstimate(1, 1, 1)
    assert result.finds_real[0.001].low == result.finds_synthetic[0.001].low == pytest.approx(1)


def test_intervals_have_the_stated_coverage() -> None:
    random = np.random.default_rng(0)
    is_real = np.arange(200) < 80
    truth = 0.5 * math.erfc(-0.5)  # for two normal distributions, one standard deviation apart
    covered = 0
    for _ in range(200):
        auc = evaluate("any", random.normal(size=200) + is_real, is_real, samples=200).auc
        covered += auc.low <= truth <= auc.high
    assert 0.88 <= covered / 200 <= 0.99


def test_intervals_equal_a_bootstrap_of_uids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with a simple bootstrap, with and without grouped scores."""
    random = np.random.default_rng(0)
    is_real = np.arange(3000) < 1000
    scores = random.normal(size=3000) + 0.5 * is_real
    parts = np.flatnonzero(is_real), np.flatnonzero(~is_real)
    drawn = []
    for _ in range(400):
        chosen = np.concatenate([random.choice(part, len(part)) for part in parts])
        result = evaluate("any", scores[chosen], is_real[chosen], samples=1)
        drawn.append([result.auc.value, result.finds_real[0.01].value])
    expected = np.quantile(drawn, [0.025, 0.975], axis=0).T
    for ends, groups in ((500, 1000), (20, 100), (5000, 1)):
        monkeypatch.setattr(statistics, "_ENDS", ends)
        monkeypatch.setattr(statistics, "_GROUPS", groups)
        result = evaluate("any", scores, is_real, samples=1000)
        for estimate, ends_of in zip((result.auc, result.finds_real[0.01]), expected, strict=True):
            assert [estimate.low, estimate.high] == pytest.approx(ends_of, abs=0.01)
        assert result == evaluate("any", scores, is_real, samples=1000)


@given(SCORED, st.integers(0, 60), st.integers(1, 20))
def test_grouping_loses_no_uid(rows: list[tuple[bool, float]], ends: int, groups: int) -> None:
    truth, scores = (np.array(column) for column in zip(*rows, strict=True))
    levels = np.unique(scores)
    counts = [(scores[kind][:, None] == levels).sum(axis=0) for kind in (truth, ~truth)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_ENDS", ends)
        patch.setattr(statistics, "_GROUPS", groups)
        found = statistics._grouped(*counts)
    assert [group.sum() for group in found] == [count.sum() for count in counts]
    assert len(found[0]) == len(found[1]) <= len(levels)


@pytest.mark.parametrize(
    ("plain", "folded"),
    [
        (IntervalEstimate(0.7, 0.6, 0.8), (0.7, 0.6, 0.8)),
        (IntervalEstimate(0.3, 0.2, 0.4), (0.7, 0.6, 0.8)),
        (IntervalEstimate(0.49, 0.4, 0.52), (0.51, 0.5, 0.6)),
    ],
)
def test_folding(plain: IntervalEstimate, folded: tuple[float, float, float]) -> None:
    found = plain.folded
    assert (found.value, found.low, found.high) == pytest.approx(folded)


def test_unseen_uids_are_left_out() -> None:
    scores = np.array([1.0, np.nan, 0.0, np.nan])
    result = evaluate("any", scores, np.array([True, False, False, True]), samples=2)
    assert (result.real, result.synthetic, result.auc.value) == (1, 1, 1)


def test_figures_need_both_kinds() -> None:
    nothing = evaluate("any", np.full(4, np.nan), np.arange(4) < 2)
    one_kind = evaluate("any", np.ones(4), np.ones(4, dtype=bool))
    assert (one_kind.real, one_kind.synthetic) == (4, 0)
    for result in (nothing, one_kind):
        assert math.isnan(result.auc.value)
        assert math.isnan(result.folded_auc.value)
        assert math.isnan(result.true_positive_rate(0.01).value)


def test_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        evaluate("any", np.ones(3), np.ones(4, dtype=bool))


def test_intervals_of_higher_confidence_agree_with_the_bootstrap() -> None:
    """DeLong's standard deviation against many bootstrap samples, with ties."""
    random = np.random.default_rng(5)
    truth = np.arange(900) < 600
    scores = (random.normal(size=900) + 0.8 * truth).round(1).astype(np.float64)
    wide = evaluate("any", scores, truth, samples=50, confidence=0.999)
    narrow = evaluate("any", scores, truth, samples=3000)
    factor = (wide.auc.high - wide.auc.low) / (narrow.auc.high - narrow.auc.low)
    assert factor == pytest.approx(3.29 / 1.96, rel=0.05)
    assert wide.auc.value == narrow.auc.value
    for rate in FALSE_POSITIVE_RATES:
        assert wide.finds_real[rate].low <= narrow.finds_real[rate].low + 0.01
