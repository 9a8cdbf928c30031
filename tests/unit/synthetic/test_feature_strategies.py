"""Synthetic features: donors, and embeddings by the paper's formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.settings.agreement import FeatureStrategyName
from florist.common.synthetic.feature_strategies import (
    FEATURE_STRATEGIES,
    EmbeddingStrategy,
    FeaGaussian,
    FeaRandom,
    FeaSampling,
    FeatureSettings,
    feature_strategy,
)
from florist.common.synthetic.secret_draws import SecretDraws

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

DRAWS = SecretDraws.from_seed(5)
SETTINGS = FeatureSettings(DRAWS, rows=50, width=16)
COUNT = 20_000


def real_rows(rows: int = 300, width: int = 16, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator).relu() * 3 + torch.arange(width)


def test_names() -> None:
    assert FEATURE_STRATEGIES.names == ("fea-sampling", "fea-gaussian", "fea-random")
    for name in FEATURE_STRATEGIES.names:
        strategy = feature_strategy(name, SETTINGS)
        assert strategy.name == name
        assert strategy.looks_real == (name == "fea-sampling")
        assert isinstance(strategy, EmbeddingStrategy) == (name != "fea-sampling")
    with pytest.raises(ConfigurationError, match=r"choose one of: fea-sampling, fea-g"):
        feature_strategy("fea-magic", SETTINGS)


def test_names_of_the_agreement() -> None:
    assert get_args(FeatureStrategyName) == FEATURE_STRATEGIES.names


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("fea-sampling", lambda: feature_strategy("fea-sampling", replace(SETTINGS, rows=0))),
        ("fea-gaussian", lambda: FeaGaussian(DRAWS, scale=0.0)),
        ("fea-gaussian", lambda: FeaGaussian(DRAWS, scale=float("nan"))),
        ("fea-random", lambda: FeaRandom(DRAWS, 16, momentum=0.0)),
        ("fea-random", lambda: FeaRandom(DRAWS, 16, momentum=1.1)),
    ],
)
def test_invalid_settings_are_refused(name: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make()


@given(st.lists(st.integers(0, 10**9), max_size=20), st.integers(0, 5))
def test_sticky_donors_never_change(ranks: list[int], epoch: int) -> None:
    strategy = FeaSampling(DRAWS, 50)
    at = np.array(ranks, dtype=np.int64)
    assert np.array_equal(strategy.donors(at, epoch), strategy.donors(at, 0))
    one_by_one = [int(strategy.donors(at[[i]], epoch)[0]) for i in range(len(ranks))]
    assert strategy.donors(at, epoch).tolist() == one_by_one


def test_redrawn_donors_change() -> None:
    strategy = FeaSampling(DRAWS, 50, sticky=False)
    ranks = np.arange(COUNT)
    first, second = strategy.donors(ranks, 0), strategy.donors(ranks, 1)
    assert np.array_equal(first, strategy.donors(ranks, 0))
    assert abs((first == second).mean() - 1 / 50) < 0.006


def test_donors_are_uniform() -> None:
    counts = np.bincount(FeaSampling(DRAWS, 50).donors(np.arange(COUNT), 0), minlength=50)
    expected = COUNT / 50
    assert ((counts - expected) ** 2 / expected).sum() < 49 + 5 * np.sqrt(2 * 49)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_gaussian_has_the_papers_variance(scale: float) -> None:
    real = real_rows()
    largest = max(sum(x * x for x in row) for row in real.tolist())
    synthetic = FeaGaussian(DRAWS, scale).embeddings(real, COUNT, 0, 0)
    variance = scale / 16 * largest
    assert synthetic.shape == (COUNT, 16)
    assert synthetic.dtype == torch.float32
    assert synthetic.mean(0).abs().max() < 5 * np.sqrt(variance / COUNT)
    assert (synthetic.var(0) / variance - 1).abs().max() < 5 * np.sqrt(2 / COUNT)
    correlations = np.corrcoef(synthetic.numpy().T) - np.eye(16)
    assert np.abs(correlations).max() < 5 / np.sqrt(COUNT)


def test_gaussian_without_a_real_row() -> None:
    synthetic = FeaGaussian(DRAWS, 4.0).embeddings(torch.empty(0, 16), COUNT, 0, 0)
    assert abs(float(synthetic.std()) - 2) < 0.02


def test_random_follows_moving_averages() -> None:
    strategy = FeaRandom(DRAWS, 16, momentum=0.3)
    mean = np.zeros(16)
    deviation = np.ones(16)
    for step, rows in enumerate((300, 0, 1, 500)):
        real = real_rows(rows, seed=step) + step
        synthetic = strategy.embeddings(real, COUNT, 0, step)
        if rows:
            values = real.double().numpy()
            weight = 1.0 if step == 0 else 0.3
            mean = (1 - weight) * mean + weight * values.mean(0)
            deviation = (1 - weight) * deviation + weight * values.std(0)
        error = np.abs(synthetic.numpy().mean(0) - mean)
        assert np.all(error < 5 * deviation / np.sqrt(COUNT) + 1e-6)
        assert np.all(np.abs(synthetic.numpy().std(0) / deviation - 1) < 5 / np.sqrt(2 * COUNT))


def test_random_before_any_real_row_is_standard_normal() -> None:
    strategy = FeaRandom(DRAWS, 16)
    synthetic = strategy.embeddings(torch.empty(0, 16), COUNT, 0, 0)
    assert abs(float(synthetic.mean())) < 0.01
    assert abs(float(synthetic.std()) - 1) < 0.01
    real = real_rows()
    strategy.embeddings(real, 0, 0, 1)
    torch.testing.assert_close(strategy.state()["mean"], real.mean(0))


@pytest.mark.parametrize("name", ["fea-gaussian", "fea-random"])
def test_embeddings_are_resumed(name: str) -> None:
    def make() -> EmbeddingStrategy:
        strategy = feature_strategy(name, SETTINGS)
        assert isinstance(strategy, EmbeddingStrategy)
        return strategy

    whole, first, second = make(), make(), make()
    for step in range(3):
        whole.embeddings(real_rows(seed=step), 5, 0, step)
        first.embeddings(real_rows(seed=step), 5, 0, step)
    state = {key: value.clone() for key, value in first.state().items()}
    first.embeddings(real_rows(seed=9), 5, 0, 9)
    second.restore(state)
    expected = whole.embeddings(real_rows(seed=3), 5, 0, 3)
    assert torch.equal(second.embeddings(real_rows(seed=3), 5, 0, 3), expected)
    assert not torch.equal(second.embeddings(real_rows(seed=3), 5, 0, 4), expected)
    if not state:
        with pytest.raises(ValueError, match="no state"):
            second.restore({"mean": torch.zeros(16)})


@pytest.mark.parametrize("name", ["fea-gaussian", "fea-random"])
def test_embeddings_carry_no_gradient(name: str) -> None:
    strategy = feature_strategy(name, SETTINGS)
    assert isinstance(strategy, EmbeddingStrategy)
    real = real_rows().requires_grad_()
    assert not strategy.embeddings(real, 3, 0, 0).requires_grad
    assert strategy.embeddings(real, 0, 0, 1).shape == (0, 16)
