"""The evidence of sums about single rows, compared with the same from dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from florist.common.audit.attack_tools.label_sums import LabelSums, log_likelihood_ratios

ROWS, COLUMNS, CATEGORIES, NOISE = 300, 3, 6, 2.0


@pytest.fixture
def random() -> np.random.RandomState:
    return np.random.RandomState(1)


@pytest.fixture
def coordinates(random: np.random.RandomState) -> np.ndarray:
    drawn = random.randint(0, CATEGORIES, (ROWS, COLUMNS)) + CATEGORIES * np.arange(COLUMNS)
    return np.asarray(drawn, dtype=np.int32)


def test_the_ratio_is_that_of_two_normal_distributions(
    random: np.random.RandomState, coordinates: np.ndarray
) -> None:
    sums = LabelSums.of(coordinates, COLUMNS * CATEGORIES, NOISE)
    phi = sums.features.toarray()
    codes, chances = random.choice([-1.0, 3.0], ROWS), random.uniform(0.2, 0.8, ROWS)
    variances = chances * (1 - chances) * codes**2
    covariance = phi.T @ (variances[:, None] * phi) + NOISE**2 * np.eye(phi.shape[1])
    leverages = np.einsum("ij,ji->i", phi, np.linalg.solve(covariance, phi.T))
    told = sums.sums(codes * (random.uniform(size=ROWS) < chances))
    mean = sums.sums(chances * codes)
    found = log_likelihood_ratios(sums.evidence(told - mean, variances), codes, chances, leverages)
    for row in range(5):
        step = codes[row] * phi[row]
        others = covariance - variances[row] * np.outer(phi[row], phi[row])
        without = mean - chances[row] * step
        expected = multivariate_normal(without + step, others).logpdf(told)
        expected -= multivariate_normal(without, others).logpdf(told)
        assert found[row] == pytest.approx(expected, abs=0.01)


def test_leverages_are_right_on_average(
    random: np.random.RandomState, coordinates: np.ndarray
) -> None:
    sums = LabelSums.of(coordinates, COLUMNS * CATEGORIES, NOISE)
    phi, variances = sums.features.toarray(), np.full(ROWS, 0.25)
    covariance = phi.T @ (variances[:, None] * phi) + NOISE**2 * np.eye(phi.shape[1])
    exact = np.einsum("ij,ji->i", phi, np.linalg.solve(covariance, phi.T))
    found = sums.leverages(variances, random)
    assert found.mean() == pytest.approx(exact.mean(), rel=0.3)


def test_a_coordinate_without_rows_and_without_noise(coordinates: np.ndarray) -> None:
    sums = LabelSums.of(coordinates, COLUMNS * CATEGORIES + 1, 0.0)
    told = sums.sums(np.ones(ROWS))
    assert np.isfinite(sums.evidence(told, np.full(ROWS, 0.25))).all()
