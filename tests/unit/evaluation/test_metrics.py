"""Metrics against slow, simple versions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.evaluation.metrics import (
    BINS,
    ace,
    auc,
    calibration_curve,
    evaluate,
    log_loss,
)

#: Few distinct values, so that ties are the rule.
BINARY = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 8).map(lambda n: n / 8)), min_size=2, max_size=60
).filter(lambda rows: len({label for label, _ in rows}) == 2)


def several(rows: int, classes: int, seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    random = np.random.default_rng(seed)
    predictions = random.dirichlet(np.ones(classes), rows)
    labels = np.array([random.choice(classes, p=row) for row in predictions])
    return labels, predictions


def slow_auc(labels: list[int], scores: list[float]) -> float:
    """Return the share of pairs in the right order; a tie counts half."""
    pairs = [
        (p > n) + 0.5 * (p == n)
        for p, y in zip(scores, labels, strict=True)
        if y == 1
        for n, z in zip(scores, labels, strict=True)
        if z == 0
    ]
    return sum(pairs) / len(pairs)


def slow_ace(labels: list[int], predictions: list[float], bins: int) -> float:
    """Compute the ACE row by row, with the mean label of tied rows."""
    mean_label = {
        p: sum(y for y, q in zip(labels, predictions, strict=True) if q == p) / predictions.count(p)
        for p in predictions
    }
    ranked = sorted(predictions)
    bins = min(bins, len(ranked))
    gaps = []
    for i in range(bins):
        rows = ranked[len(ranked) * i // bins : len(ranked) * (i + 1) // bins]
        gaps.append(abs(sum(mean_label[p] - p for p in rows)) / len(rows))
    return sum(gaps) / bins


@settings(deadline=None)
@given(BINARY)
def test_auc_by_pairs(rows: list[tuple[int, float]]) -> None:
    labels, scores = [list(column) for column in zip(*rows, strict=True)]
    assert auc(labels, scores) == pytest.approx(slow_auc(labels, scores))


def test_auc_takes_any_scores() -> None:
    assert auc([0, 1, 1], [-7.0, 3.0, 40.0]) == 1
    assert auc([True, False], [0.1, 0.2]) == 0


def test_auc_of_several_classes_is_each_against_the_rest() -> None:
    labels, predictions = several(300, 4)
    expected = [
        slow_auc((labels == c).astype(int).tolist(), predictions[:, c].tolist()) for c in range(4)
    ]
    assert auc(labels, predictions) == pytest.approx(np.mean(expected))


@settings(deadline=None)
@given(BINARY, st.integers(1, 20))
def test_ace_row_by_row(rows: list[tuple[int, float]], bins: int) -> None:
    labels, predictions = [list(column) for column in zip(*rows, strict=True)]
    expected = slow_ace(labels, predictions, bins)
    assert ace(labels, predictions, bins) == pytest.approx(expected)
    assert ace(labels[::-1], predictions[::-1], bins) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [150, 157])
def test_ace_of_several_classes_is_the_mean(rows: int) -> None:
    labels, predictions = several(rows, 3)
    expected = [
        slow_ace((labels == c).astype(int).tolist(), predictions[:, c].tolist(), BINS)
        for c in range(3)
    ]
    assert ace(labels, predictions) == pytest.approx(np.mean(expected))


def test_ace_of_two_classes_is_that_of_either_class() -> None:
    labels, predictions = several(150, 2)
    expected = ace(labels, predictions[:, 1])
    assert ace(1 - labels, predictions[:, 0]) == pytest.approx(expected)
    assert ace(labels, predictions) == pytest.approx(expected)


def test_ace_detects_miscalibration() -> None:
    random = np.random.default_rng(1)
    truth = random.random(100_000)
    labels = random.random(100_000) < truth
    assert ace(labels, truth) < 0.01
    assert ace(labels, truth / 2) == pytest.approx(0.25, abs=0.01)
    assert ace(labels, np.full(100_000, labels.mean())) == pytest.approx(0, abs=1e-9)


def test_curve_has_bins_of_equal_count() -> None:
    labels, predictions = several(1003, 2)
    curve = calibration_curve(labels, predictions[:, 1], bins=10)
    assert curve.count.sum() == 1003
    assert set(curve.count.tolist()) == {100, 101}
    assert np.all(np.diff(curve.confidence) > 0)
    assert curve.confidence @ curve.count == pytest.approx(predictions[:, 1].sum())
    assert curve.accuracy @ curve.count == pytest.approx(labels.sum())
    assert ace(labels, predictions[:, 1], 10) == pytest.approx(
        np.abs(curve.accuracy - curve.confidence).mean()
    )


def test_curve_of_fewer_rows_than_bins() -> None:
    curve = calibration_curve([0, 1, 1], [0.2, 0.6, 0.9])
    assert curve.count.tolist() == [1, 1, 1]
    assert curve.accuracy.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="a single class"):
        calibration_curve([0, 1], [[0.1, 0.9], [0.2, 0.8]])


@settings(deadline=None)
@given(BINARY)
def test_log_loss_row_by_row(rows: list[tuple[int, float]]) -> None:
    labels, predictions = [list(column) for column in zip(*rows, strict=True)]
    losses = [-math.log(max(p if y else 1 - p, 2**-53)) for y, p in rows]
    assert log_loss(labels, predictions) == pytest.approx(sum(losses) / len(losses))


def test_log_loss_of_several_classes() -> None:
    labels, predictions = several(50, 3)
    expected = -np.mean([math.log(row[y]) for y, row in zip(labels, predictions, strict=True)])
    assert log_loss(labels, predictions) == pytest.approx(expected)
    assert log_loss([0], [1.0]) == pytest.approx(53 * math.log(2))
    assert log_loss([0], np.zeros(1, np.float32)) == 0


def test_evaluate_returns_all_metrics() -> None:
    labels, predictions = several(200, 3)
    scores = evaluate(labels, predictions)
    assert scores.auc == auc(labels, predictions)
    assert scores.ace == ace(labels, predictions)
    assert scores.log_loss == log_loss(labels, predictions)


@pytest.mark.parametrize("metric", [auc, ace, log_loss, evaluate, calibration_curve])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_diverged_predictions_are_explained(metric: Any, wrong: float) -> None:  # noqa: ANN401
    with pytest.raises(ConfigurationError, match="training diverged"):
        metric([0, 1], [wrong, 0.5])


def test_auc_needs_all_classes() -> None:
    with pytest.raises(ConfigurationError, match="every class, but no row has the label 1"):
        auc([0, 0], [0.1, 0.2])
    with pytest.raises(ConfigurationError, match="no row has the label 0, 2"):
        auc([1, 1], [[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]])
    assert ace([0, 0], [0.1, 0.3]) == pytest.approx(0.2)
    assert log_loss([0, 0], [0.5, 0.5]) == pytest.approx(math.log(2))


@pytest.mark.parametrize("metric", [auc, ace, log_loss])
def test_invalid_input_is_refused(metric: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigurationError, match="no row"):
        metric([], [])
    with pytest.raises(ValueError, match="differ in shape"):
        metric([0, 1], [0.5])
    with pytest.raises(ValueError, match="from 0 to 1"):
        metric([0, 2], [0.5, 0.5])
    with pytest.raises(ValueError, match="from 0 to 1"):
        metric([0.5, 1], [0.5, 0.5])


@pytest.mark.parametrize("metric", [ace, log_loss])
def test_only_auc_accepts_scores_that_are_not_probabilities(metric: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="probabilities"):
        metric([0, 1], [0.5, 1.5])
