"""What is expected before a run, compared with what the estimators find on generated data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from florist.common.evaluation.expected_precision import (
    TYPICAL_AUC,
    auc_standard_error,
    expected_for_evaluation,
    expected_for_test_table,
)
from florist.common.evaluation.metrics import auc
from florist.common.evaluation.private_estimate import WIDTH, private_estimate


def scored(
    rows: int, rate: float, share: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and predictions of the typical AUC for a fraction of the rows; the others' are noise.

    With a shift of d between two normal distributions, the AUC is the normal CDF of d / sqrt(2).
    """
    labels = (np.arange(rows) < round(rows * rate)).astype(np.int64)
    is_real = random.permutation(rows) < round(rows * share)
    other = random.permutation(labels)
    shift = math.sqrt(2) * norm.ppf(TYPICAL_AUC)
    scores = random.normal(size=rows) + shift * np.where(is_real, labels, other)
    return labels, norm.cdf(scores - shift / 2)


@pytest.mark.parametrize(("rows", "rate"), [(60, 0.5), (400, 0.1), (2000, 0.3)])
def test_the_spread_of_the_auc_on_a_test_table(rows: int, rate: float) -> None:
    random = np.random.default_rng(1)
    found = [auc(*scored(rows, rate, 1.0, random)) for _ in range(600)]
    expected = auc_standard_error(TYPICAL_AUC, rows * rate, rows * (1 - rate))
    assert np.std(found) == pytest.approx(expected, rel=0.12)
    assert expected_for_test_table(rows, rate).half_width == pytest.approx(WIDTH * expected)


@pytest.mark.parametrize("once", [True, False])
def test_the_spread_of_the_private_estimate(once: bool) -> None:  # noqa: FBT001 - a parameter
    expected = expected_for_evaluation(1500, 0.3, padding=50, once=once)
    assert (expected.rows, expected.share) == ((450, pytest.approx(1 / 3)) if once else (1500, 0.5))
    random = np.random.default_rng(2)
    found = []
    for _ in range(300):
        labels, predictions = scored(expected.rows, 0.3, expected.share, random)
        shared = round(expected.rows * expected.share)
        found.append(private_estimate(labels, predictions, shared).auc.value)
    assert np.mean(found) == pytest.approx(TYPICAL_AUC, abs=0.03)
    assert WIDTH * np.std(found) == pytest.approx(expected.half_width, rel=0.12)


def test_too_small_tables_are_named() -> None:
    assert expected_for_test_table(20_000, 0.5).warning == ""
    few = expected_for_test_table(100, 0.5)
    assert few.half_width == pytest.approx(0.102, abs=0.002)
    assert "±0.1 (95% interval)" in few.shown
    assert few.warning == "too wide to be of use: ±0.05 needs a table 4.2 times as large"
    none = expected_for_evaluation(30, 0.5, padding=20, once=True)
    assert none.half_width == math.inf
    assert "±0.5 or more" in none.shown
    assert "too few rows of a class" in none.warning
