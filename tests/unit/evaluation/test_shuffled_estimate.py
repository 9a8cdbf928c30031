"""The estimate with own features: its algebra, and simulated overlaps whose truth is known."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation import metrics
from florist.common.evaluation.metric_estimates import check_labels, estimate_metrics
from florist.common.evaluation.private_estimate import private_estimate
from florist.common.evaluation.shuffled_estimate import Shuffled, shuffled_estimate, shuffles

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

# Simulated people whose truth is known: own features x, correlated embeddings e, and over-confident
# predictions from both.


def prediction(x: Floats, e: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(1 - 1.2 * (x + e))))


def people(rows: int, random: np.random.Generator) -> tuple[Floats, Floats, Labels]:
    x = random.standard_normal(rows)
    e = 0.3 * x + math.sqrt(1 - 0.3**2) * random.standard_normal(rows)
    labels = random.random(rows) < 1 / (1 + np.exp(1 - 0.8 * (x + e)))
    return x, e, labels.astype(np.int64)


def simulated(
    rows: int, shared: int, random: np.random.Generator, times: int = 8
) -> tuple[Labels, Floats, Shuffled]:
    """Give `shared` random rows their own embedding, and the others someone else's."""
    x, e, labels = people(rows, random)
    others = random.permutation(rows) >= shared
    e[others] = random.standard_normal(rows - shared)
    partners = shuffles(rows, times, random)
    return labels, prediction(x, e), Shuffled(prediction(x[:, None], e[partners]), partners)


@cache
def truth() -> tuple[float, float]:
    x, e, labels = people(400_000, np.random.default_rng(0))
    return metrics.auc(labels, prediction(x, e)), metrics.log_loss(labels, prediction(x, e))


@pytest.mark.parametrize("shared", [150, 700])
def test_unbiased_and_covers_at_the_stated_rate(shared: int) -> None:
    random = np.random.default_rng(shared)
    rows, replications = 1000, 100
    estimates = [
        shuffled_estimate(*simulated(rows, shared, random), shared) for _ in range(replications)
    ]
    plain_ace = float(
        np.mean([metrics.ace(*simulated(rows, rows, random)[:2]) for _ in range(replications)])
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
        coverage = np.mean([e.low <= true <= e.high for e in found])
        assert 0.90 <= coverage <= 1.0
        if not bias:
            assert errors.mean() == pytest.approx(values.std(), rel=0.25)


def test_the_plain_estimate_is_biased_with_own_features() -> None:
    random = np.random.default_rng(1)
    auc, _ = truth()
    rows, shared = 4000, 1200
    labels, predictions, shuffled = simulated(rows, shared, random)
    plain = private_estimate(labels, predictions, shared)
    assert plain.auc.low > auc + 0.05
    assert shuffled_estimate(labels, predictions, shuffled, shared).auc.low < auc


def test_rates_of_bins_are_unbiased() -> None:
    random = np.random.default_rng(2)
    curves = [
        shuffled_estimate(*simulated(2000, 800, random), 800, bins=5).curve for _ in range(40)
    ]
    x, e, labels = people(500_000, random)
    true = metrics.calibration_curve(labels, prediction(x, e), bins=5)
    rates = np.array([c.rate for c in curves])
    assert np.abs(rates.mean(axis=0) - true.accuracy).max() < 0.02
    confidence = np.array([c.confidence for c in curves]).mean(axis=0)
    assert np.abs(confidence - true.confidence).max() < 0.02
    covered = np.mean([(c.low <= true.accuracy) & (true.accuracy <= c.high) for c in curves])
    assert 0.90 <= covered <= 0.99


def test_estimates_equal_the_plain_metrics_if_all_features_are_real() -> None:
    labels, predictions, shuffled = simulated(600, 600, np.random.default_rng(3))
    found = shuffled_estimate(labels, predictions, shuffled, 600)
    plain = private_estimate(labels, predictions, 600)
    assert found.auc.value == pytest.approx(plain.auc.value)
    assert found.auc.standard_error == pytest.approx(plain.auc.standard_error, rel=0.01)
    assert found.log_loss.value == pytest.approx(plain.log_loss.value)
    assert found.log_loss.standard_error == pytest.approx(plain.log_loss.standard_error, rel=0.01)
    assert found.ace.value == pytest.approx(plain.ace.value)
    np.testing.assert_allclose(found.curve.rate, plain.curve.rate)
    np.testing.assert_allclose(found.curve.confidence, plain.curve.confidence)
    np.testing.assert_array_equal(found.curve.count, plain.curve.count)


def test_auc_equals_brute_force() -> None:
    labels, predictions, shuffled = simulated(60, 25, np.random.default_rng(4), times=3)
    found = shuffled_estimate(labels, predictions, shuffled, 25)

    def beats(ones: Floats, zeros: Floats) -> float:
        return float(((np.sign(ones.ravel()[:, None] - zeros.ravel()) + 1) / 2).mean())

    one, zero = labels == 1, labels == 0
    seen, other = predictions, shuffled.predictions
    r, q = 25 / 60, 25 * 24 / (60 * 59)
    both, neither = beats(seen[one], seen[zero]), beats(other[one], other[zero])
    first = (beats(seen[one], other[zero]) - (1 - r) * neither) / r
    second = (beats(other[one], seen[zero]) - (1 - r) * neither) / r
    mixed = q * found.auc.value + (r - q) * (first + second) + (1 - 2 * r + q) * neither
    assert mixed == pytest.approx(both)


def test_errors_agree_with_a_bootstrap_of_people() -> None:
    """People are resampled together with their own features, embeddings and labels."""
    random = np.random.default_rng(5)
    rows, shared = 800, 320
    x, e, labels = people(rows, random)
    others = random.permutation(rows) >= shared
    e[others] = random.standard_normal(rows - shared)

    def found(drawn: Labels) -> tuple[float, float, float, float]:
        partners = shuffles(rows, 8, random)
        shuffled = Shuffled(prediction(x[drawn][:, None], e[drawn][partners]), partners)
        result = shuffled_estimate(labels[drawn], prediction(x[drawn], e[drawn]), shuffled, shared)
        return (
            result.auc.value,
            result.log_loss.value,
            result.auc.standard_error,
            result.log_loss.standard_error,
        )

    again = np.array([found(random.integers(0, rows, rows)) for _ in range(80)])
    auc, loss = found(np.arange(rows))[2:]
    assert auc == pytest.approx(again[:, 0].std(), rel=0.2)
    assert loss == pytest.approx(again[:, 1].std(), rel=0.2)


def test_shuffles_use_each_row_equally_often() -> None:
    partners = shuffles(50, 6, np.random.default_rng(6))
    assert partners.shape == (50, 6)
    for column in partners.T:
        assert sorted(column) == list(range(50))
    everyone = np.column_stack((np.arange(50), partners))
    assert all(len(set(row)) == 7 for row in everyone.tolist())
    assert shuffles(3, 8, np.random.default_rng(6)).shape == (3, 2)


@pytest.mark.parametrize(
    ("change", "shared", "message"),
    [
        ({}, 0, "too few people in common"),
        ({}, 1, "too few people in common"),
        ({"labels": 0}, 20, "every class"),
        ({"shuffled": math.nan}, 20, "NaN or infinite"),
        ({"predictions": math.nan}, 20, "NaN or infinite"),
    ],
    ids=str,
)
def test_invalid_data_are_refused(change: dict[str, float], shared: int, message: str) -> None:
    labels, predictions, shuffled = simulated(40, 20, np.random.default_rng(7))
    if "labels" in change:
        labels[:] = 0
    if "predictions" in change:
        predictions[3] = math.nan
    if "shuffled" in change:
        shuffled.predictions[3, 1] = math.nan
    with pytest.raises(ConfigurationError, match=message):
        shuffled_estimate(labels, predictions, shuffled, shared)


def test_invalid_arguments_are_refused() -> None:
    labels, predictions, shuffled = simulated(40, 20, np.random.default_rng(7))
    with pytest.raises(ValueError, match="cannot be shared"):
        shuffled_estimate(labels, predictions, shuffled, 41)


# --- several classes: each against the rest ---


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def classified(
    rows: int, shared: int, random: np.random.Generator, *, own: float
) -> tuple[Labels, Floats, Shuffled]:
    """Return predictions for three classes; `own` is the weight of own features."""
    x, e = random.standard_normal((2, rows, 3))
    sums = np.cumsum(softmax(own * x + e), axis=1)
    labels = (random.random(rows)[:, None] > sums[:, :2]).sum(axis=1)
    others = random.permutation(rows) >= shared
    e[others] = random.standard_normal((rows - shared, 3))
    partners = shuffles(rows, 4, random)
    return (
        labels,
        softmax(1.5 * (own * x + e)),
        Shuffled(softmax(1.5 * (own * x[:, None] + e[partners])), partners),
    )


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_several_classes(own: float) -> None:
    random = np.random.default_rng(8)
    labels, predictions, _ = classified(200_000, 200_000, random, own=own)
    true = metrics.evaluate(labels, predictions)
    found = []
    for _ in range(40):
        labels, predictions, shuffled = classified(900, 450, random, own=own)
        found.append(estimate_metrics(labels, predictions, 450, shuffled if own else None))
    for name in ("auc", "log_loss"):
        values = np.array([getattr(e, name).value for e in found])
        errors = np.array([getattr(e, name).standard_error for e in found])
        assert abs(values.mean() - getattr(true, name)) < 3 * values.std() / math.sqrt(40)
        assert values.std() < 1.2 * errors.mean()
    assert found[0].curve is None
    assert (found[0].rows, found[0].shared) == (900, 450)


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_several_classes_with_all_features_real(own: float) -> None:
    labels, predictions, shuffled = classified(500, 500, np.random.default_rng(9), own=own)
    found = estimate_metrics(labels, predictions, 500, shuffled if own else None)
    plain = metrics.evaluate(labels, predictions)
    assert found.auc.value == pytest.approx(plain.auc)
    assert found.log_loss.value == pytest.approx(plain.log_loss)
    assert found.ace.value == pytest.approx(plain.ace, abs=1e-3)


def test_each_class_needs_two_rows() -> None:
    check_labels(np.array([0, 0, 1, 1]), 2)
    for labels, classes in (([0, 0, 1], 2), ([0, 0, 1, 1], 3)):
        with pytest.raises(ConfigurationError, match="two rows of each class"):
            check_labels(np.array(labels), classes)
