"""The gain over a baseline: its algebra, and simulated overlaps whose truth is known."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.evaluation import metrics
from florist.common.evaluation.metric_estimates import estimate_metrics
from florist.common.evaluation.paired_estimates import (
    Gain,
    ScoredPeople,
    plain_auc,
    plain_gain,
    private_gain,
)
from florist.common.evaluation.private_estimate import delong_error
from florist.common.evaluation.shuffled_estimate import Shuffled, shuffles

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

# Simulated people whose truth is known: own features x and correlated embeddings e. The joint model
# uses both, the baseline x alone.


def joint(x: Floats, e: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(1 - 1.2 * (x + e))))


def alone(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(1 - 1.3 * x)))


def people(rows: int, random: np.random.Generator) -> tuple[Floats, Floats, Labels]:
    x = random.standard_normal(rows)
    e = 0.3 * x + math.sqrt(1 - 0.3**2) * random.standard_normal(rows)
    labels = random.random(rows) < 1 / (1 + np.exp(1 - 0.8 * (x + e)))
    return x, e, labels.astype(np.int64)


def simulated(
    rows: int, shared: int, random: np.random.Generator, deviation: float = 0.0
) -> tuple[ScoredPeople, Floats]:
    """Give `shared` random rows their own embedding; the number that is known may be noisy."""
    x, e, labels = people(rows, random)
    others = random.permutation(rows) >= shared
    e[others] = random.standard_normal(rows - shared)
    partners = shuffles(rows, 8, random)
    known = shared + round(deviation * random.standard_normal())
    shuffled = Shuffled(joint(x[:, None], e[partners]), partners)
    scored = ScoredPeople(labels, joint(x, e), shuffled, min(max(known, 2), rows), deviation)
    return scored, alone(x)


def gain_of(scored: ScoredPeople, baseline: Floats) -> Gain:
    found = estimate_metrics(
        scored.labels,
        scored.predictions,
        scored.shared,
        scored.shuffled,
        deviation=scored.deviation,
    )
    gain = private_gain(scored, found, baseline)
    assert gain.auc.value == pytest.approx(found.auc.value - gain.baseline_auc.value)
    assert gain.log_loss.value == pytest.approx(gain.baseline_log_loss.value - found.log_loss.value)
    return gain


@cache
def truth() -> tuple[float, float]:
    """The gain in AUC, and the reduction of log loss."""
    x, e, labels = people(400_000, np.random.default_rng(0))
    return (
        metrics.auc(labels, joint(x, e)) - metrics.auc(labels, alone(x)),
        metrics.log_loss(labels, alone(x)) - metrics.log_loss(labels, joint(x, e)),
    )


@pytest.mark.parametrize(
    ("rows", "shared", "deviation"),
    [(1000, 200, 0), (1000, 700, 0), (1000, 400, 30), (400, 400, 0)],
)
def test_unbiased_and_covers_at_the_stated_rate(rows: int, shared: int, deviation: float) -> None:
    random = np.random.default_rng(shared)
    replications = 100
    gains = [gain_of(*simulated(rows, shared, random, deviation)) for _ in range(replications)]
    for found, true in zip(
        ([g.auc for g in gains], [g.log_loss for g in gains]), truth(), strict=True
    ):
        values = np.array([each.value for each in found])
        errors = np.array([each.standard_error for each in found])
        assert abs(values.mean() - true) < 3 * values.std() / math.sqrt(replications)
        coverage = np.mean([each.low <= true <= each.high for each in found])
        assert 0.90 <= coverage <= 0.99
        assert errors.mean() == pytest.approx(values.std(), rel=0.2)


def test_the_pairing_makes_the_interval_narrower() -> None:
    scored, baseline = simulated(2000, 2000, np.random.default_rng(1))
    found = gain_of(scored, baseline)
    separate = math.hypot(
        found.baseline_auc.standard_error,
        plain_auc(scored.labels, scored.predictions).standard_error,
    )
    assert found.auc.standard_error < 0.8 * separate


def test_with_real_features_only_it_is_the_plain_gain() -> None:
    scored, baseline = simulated(600, 600, np.random.default_rng(2))
    private, plain = (
        gain_of(scored, baseline),
        plain_gain(scored.labels, scored.predictions, baseline),
    )
    assert private.auc.value == pytest.approx(plain.auc.value)
    assert private.auc.standard_error == pytest.approx(plain.auc.standard_error, rel=0.01)
    assert private.log_loss.value == pytest.approx(plain.log_loss.value)
    assert private.log_loss.standard_error == pytest.approx(plain.log_loss.standard_error, rel=0.01)


def test_plain_errors_are_delongs_and_agree_with_a_bootstrap_of_people() -> None:
    random = np.random.default_rng(3)
    x, e, labels = people(500, random)
    scores, baseline = joint(x, e), alone(x)
    assert plain_auc(labels, scores).value == pytest.approx(metrics.auc(labels, scores))
    assert plain_auc(labels, scores).standard_error == pytest.approx(
        delong_error(labels == 1, scores), rel=0.01
    )
    drawn = (random.integers(0, 500, 500) for _ in range(300))
    resampled = [plain_gain(labels[d], scores[d], baseline[d]) for d in drawn]
    found = plain_gain(labels, scores, baseline)
    for name in ("auc", "log_loss"):
        spread = np.std([getattr(each, name).value for each in resampled])
        assert getattr(found, name).standard_error == pytest.approx(spread, rel=0.15)


def test_without_own_features_the_baseline_is_the_base_rate() -> None:
    random = np.random.default_rng(4)
    scored, _ = simulated(800, 300, random, deviation=10.0)
    scored = ScoredPeople(scored.labels, scored.predictions, None, scored.shared, 10.0)
    baseline = np.full(800, scored.labels.mean())
    found = estimate_metrics(scored.labels, scored.predictions, scored.shared, None, deviation=10.0)
    gain = private_gain(scored, found, baseline)
    assert gain.baseline_auc.value == 0.5
    assert gain.baseline_auc.standard_error == 0
    assert gain.auc.value == found.auc.value - 0.5
    assert gain.auc.standard_error == found.auc.standard_error
    assert gain.log_loss.value == pytest.approx(gain.baseline_log_loss.value - found.log_loss.value)
    assert gain.log_loss.standard_error > 0


def test_two_classes_as_several() -> None:
    """The mean over both classes, each against the rest, is the plain figure."""
    scored, baseline = simulated(500, 200, np.random.default_rng(5), deviation=5.0)
    assert scored.shuffled is not None
    several = ScoredPeople(
        scored.labels,
        np.stack((1 - scored.predictions, scored.predictions), axis=1),
        scored.shuffled.by_class(),
        scored.shared,
        scored.deviation,
    )
    expected = gain_of(scored, baseline)
    found = gain_of(several, np.stack((1 - baseline, baseline), axis=1))
    assert found.auc.value == pytest.approx(expected.auc.value)
    assert found.auc.standard_error == pytest.approx(expected.auc.standard_error)
    assert found.log_loss.value == pytest.approx(expected.log_loss.value)
    assert found.log_loss.standard_error == pytest.approx(expected.log_loss.standard_error)
