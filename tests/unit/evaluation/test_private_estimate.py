"""The private estimate: its algebra, and simulated overlaps whose truth is known."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import metrics
from florist.common.evaluation.private_estimate import (
    Estimate,
    _strata,
    corrected,
    delong_error,
    imprecision,
    private_estimate,
)

Floats = npt.NDArray[np.float64]
#: Few distinct values, so that ties are the rule.
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 8).map(lambda n: n / 8)), min_size=4, max_size=60
).filter(lambda rows: 2 <= sum(label for label, _ in rows) <= len(rows) - 2)
FRACTIONS = st.floats(0.01, 1)


def split(rows: list[tuple[int, float]]) -> tuple[Floats, Floats]:
    labels, predictions = zip(*rows, strict=True)
    return np.array(labels, dtype=np.float64), np.array(predictions)


# Simulated people whose truth is known: predictions are 1/(1 + e^-(z-1)) of normal z, and
# over-confident, since P(y=1) = 1/(1 + e^(1-z/2)).


def prediction(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(1 - z)))


def probability(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(1 - z / 2)))


def simulated(
    rows: int, shared: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return labels and predictions, of which `shared` at random rows belong to the same people.

    The others are of random rows of the peer's table, which is as long and holds the shared too.
    """
    z = random.standard_normal(rows)
    labels = (random.random(rows) < probability(z)).astype(np.int64)
    others = random.permutation(rows) >= shared
    table = np.concatenate([z[~others], random.standard_normal(rows - shared)])
    z[others] = random.choice(table, rows - shared)
    return labels, prediction(z)


@cache
def truth() -> tuple[float, float]:
    """Return the true AUC and log loss, by integration."""
    z = np.linspace(-7, 7, 20_001)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    ones, zeros = density * probability(z), density * (1 - probability(z))
    auc = ones @ (np.cumsum(zeros) - zeros / 2) / ones.sum() / zeros.sum()
    loss = -(ones @ np.log(prediction(z)) + zeros @ np.log(1 - prediction(z)))
    return float(auc), float(loss)


@pytest.mark.parametrize(("rows", "shared"), [(2000, 200), (2000, 600), (1500, 1500)])
def test_unbiased_and_covers_at_the_stated_rate(rows: int, shared: int) -> None:
    random = np.random.default_rng(shared)
    replications = 200
    estimates = [
        private_estimate(*simulated(rows, shared, random), shared) for _ in range(replications)
    ]
    plain_ace = float(
        np.mean([metrics.ace(*simulated(rows, rows, random)) for _ in range(replications)])
    )
    auc, loss = truth()
    for found, true, bias in (
        ([e.auc for e in estimates], auc, 0.0),
        ([e.log_loss for e in estimates], loss, 0.0),
        ([e.ace for e in estimates], plain_ace, 0.5),  # of a standard error: |gap| cannot average 0
    ):
        values = np.array([e.value for e in found])
        errors = np.array([e.standard_error for e in found])
        allowed = 3 * values.std() / math.sqrt(replications) + bias * errors.mean()
        assert abs(values.mean() - true) < allowed
        assert errors.mean() == pytest.approx(values.std(), rel=0.25)
        coverage = np.mean([e.low <= true <= e.high for e in found])
        assert 0.91 <= coverage <= 0.99


def test_rates_of_bins_are_unbiased_and_covered() -> None:
    random = np.random.default_rng(5)
    curves = [
        private_estimate(*simulated(3000, 900, random), 900, bins=5).curve for _ in range(100)
    ]
    z = np.sort(np.random.default_rng(6).standard_normal(500_000))
    true = probability(z).reshape(5, -1).mean(axis=1)
    rates = np.array([c.rate for c in curves])
    assert np.abs(rates.mean(axis=0) - true).max() < 3.5 * rates.std() / math.sqrt(100)
    covered = np.mean([(c.low <= true) & (true <= c.high) for c in curves])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_noise_is_not_mistaken_for_miscalibration(shift: float) -> None:
    """With calibrated or uniformly shifted predictions, gaps are noise around one value."""
    random = np.random.default_rng(7)
    rows, shared = 10_000, 2_000
    naive, found, plain = [], [], []
    for _ in range(40):
        p = random.uniform(0.1, 0.8, rows)
        labels = random.random(rows) < p + shift
        plain.append(metrics.ace(labels, p))
        p[shared:] = random.uniform(0.1, 0.8, rows - shared)
        estimate = private_estimate(labels, p, shared)
        naive.append(np.abs(estimate.curve.rate - estimate.curve.confidence).mean())
        found.append(estimate.ace.value)
    assert abs(np.mean(found) - np.mean(plain)) < 0.4 * (np.mean(naive) - np.mean(plain))
    assert np.mean(np.square(np.subtract(found, np.mean(plain)))) < 0.5 * np.mean(
        np.square(np.subtract(naive, np.mean(plain)))
    )


@given(ROWS)
def test_estimates_equal_the_plain_metrics_if_all_features_are_real(
    rows: list[tuple[int, float]],
) -> None:
    labels, predictions = split(rows)
    estimate = private_estimate(labels, predictions, len(rows))
    plain = metrics.calibration_curve(labels, predictions)
    assert estimate.auc.value == metrics.auc(labels, predictions)
    assert estimate.log_loss.value == metrics.log_loss(labels, predictions)
    assert estimate.ace.value == metrics.ace(labels, predictions)
    np.testing.assert_array_equal(estimate.curve.rate, plain.accuracy)
    np.testing.assert_array_equal(estimate.curve.confidence, plain.confidence)
    np.testing.assert_array_equal(estimate.curve.count, plain.count)


@settings(max_examples=60)
@given(ROWS, st.data())
def test_observed_metrics_are_a_mixture_of_truth_and_independence(
    rows: list[tuple[int, float]], data: st.DataObject
) -> None:
    labels, predictions = split(rows)
    estimate = private_estimate(labels, predictions, data.draw(st.integers(1, len(rows))))
    r, rate = estimate.shared / estimate.rows, labels.mean()
    plain = metrics.calibration_curve(labels, predictions)
    independent = np.mean(
        [
            rate * metrics.log_loss([1], [p]) + (1 - rate) * metrics.log_loss([0], [p])
            for p in predictions
        ]
    )
    assert r * estimate.auc.value + (1 - r) / 2 == pytest.approx(metrics.auc(labels, predictions))
    assert r * estimate.log_loss.value + (1 - r) * independent == pytest.approx(
        metrics.log_loss(labels, predictions)
    )
    np.testing.assert_allclose(r * estimate.curve.rate + (1 - r) * rate, plain.accuracy, atol=1e-12)
    assert np.average(estimate.curve.rate, weights=estimate.curve.count) == pytest.approx(rate)


@given(ROWS, FRACTIONS)
def test_auc_equals_that_of_corrected_labels(rows: list[tuple[int, float]], r: float) -> None:
    labels, predictions = split(rows)
    rate = labels.mean()
    label = corrected(labels, rate, r)
    order = (np.sign(predictions[:, None] - predictions) + 1) / 2
    slow = label @ order @ (1 - label) / len(rows) ** 2 / rate / (1 - rate)
    fast = (metrics.auc(labels, predictions) - (1 - r) / 2) / r
    assert slow == pytest.approx(fast, abs=1e-6)


@given(ROWS)
def test_delong_error_equals_brute_force(rows: list[tuple[int, float]]) -> None:
    labels, predictions = split(rows)
    ones, zeros = predictions[labels == 1], predictions[labels == 0]
    order = (np.sign(ones[:, None] - zeros) + 1) / 2
    slow = order.mean(axis=1).var(ddof=1) / len(ones) + order.mean(axis=0).var(ddof=1) / len(zeros)
    assert delong_error(labels == 1, predictions) == pytest.approx(math.sqrt(slow))


def test_errors_agree_with_a_bootstrap_of_rows() -> None:
    random = np.random.default_rng(3)
    rows, shared = 1000, 400
    labels, predictions = simulated(rows, shared, random)
    estimate = private_estimate(labels, predictions, shared)
    draws = random.integers(0, rows, (200, rows))
    again = [private_estimate(labels[d], predictions[d], shared) for d in draws]
    for found, bootstrap in (
        (estimate.auc, [e.auc.value for e in again]),
        (estimate.log_loss, [e.log_loss.value for e in again]),
    ):
        assert found.standard_error == pytest.approx(np.std(bootstrap), rel=0.15)


@given(ROWS, st.integers(1, 20))
def test_bins_are_mixtures_of_strata(rows: list[tuple[int, float]], bins: int) -> None:
    labels, predictions = split(rows)
    plain = metrics.calibration_curve(labels, predictions, bins)
    share, strata = _strata(predictions, len(plain.count))
    rates = np.bincount(strata, weights=labels) / np.bincount(strata)
    np.testing.assert_allclose(share @ rates, plain.accuracy, atol=1e-12)


def test_equal_predictions_reveal_only_the_positive_rate() -> None:
    labels = np.repeat([0, 1], [300, 100])
    estimate = private_estimate(labels, np.full(400, 0.3), 100)
    assert estimate.auc.value == 0.5
    assert estimate.ace.value == pytest.approx(0.05)
    np.testing.assert_allclose(estimate.curve.rate, 0.25)
    np.testing.assert_allclose(
        estimate.curve.standard_error, math.sqrt(0.25 * 0.75 / 400), rtol=0.01
    )


def test_errors_grow_as_one_over_r() -> None:
    labels, predictions = simulated(2000, 2000, np.random.default_rng(1))
    whole, tenth = (private_estimate(labels, predictions, shared) for shared in (2000, 200))
    assert tenth.auc.standard_error == pytest.approx(10 * whole.auc.standard_error)
    assert tenth.log_loss.standard_error > 5 * whole.log_loss.standard_error


def test_the_same_seed_gives_the_same_estimate() -> None:
    labels, predictions = simulated(500, 250, np.random.default_rng(1))
    first, second, other = (private_estimate(labels, predictions, 250, seed=s) for s in (1, 1, 2))
    assert first.ace == second.ace
    assert first.ace.value == other.ace.value
    assert first.ace.standard_error != other.ace.standard_error


def test_warns_if_the_estimate_is_imprecise() -> None:
    random = np.random.default_rng(2)
    imprecise = private_estimate(*simulated(1000, 100, random), 100)
    assert imprecise.auc.half_width > 0.05
    assert "10.0% of 1,000 test rows" in imprecision(imprecise.auc, 1000, 100)
    precise = private_estimate(*simulated(4000, 4000, random), 4000)
    assert not imprecision(precise.auc, 4000, 4000)


def test_interval() -> None:
    estimate = Estimate(0.1, 0.01)
    assert (estimate.low, estimate.high) == pytest.approx((0.0804, 0.1196), abs=1e-6)
    assert str(estimate) == "0.1000 ± 0.0196"
    assert Estimate(0.01, 0.01).low == 0


@pytest.mark.parametrize(
    ("labels", "predictions", "shared", "message"),
    [
        ([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], 0, "nobody in common"),
        ([0, 0, 0, 1], [0.1, 0.2, 0.3, 0.4], 2, "at least two"),
        ([0, 0, 0, 0], [0.1, 0.2, 0.3, 0.4], 2, "every class"),
        ([0, 1, 0, 1], [0.1, 0.2, 0.3, math.nan], 2, "NaN or infinite"),
        ([0, 1, 2], np.eye(3), 2, "two classes"),
        ([], [], 0, "no row"),
    ],
)
def test_invalid_data_are_refused(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, shared: int, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        private_estimate(labels, predictions, shared)


@pytest.mark.parametrize(
    ("predictions", "shared"),
    [([0.1, 0.2, 0.3, 0.4], -1), ([0.1, 0.2, 0.3, 0.4], 5), ([0.1, 0.2, 0.3, 1.4], 2), ([0.1], 1)],
)
def test_invalid_arguments_are_refused(predictions: list[float], shared: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        private_estimate([0, 1, 0, 1], predictions, shared)
