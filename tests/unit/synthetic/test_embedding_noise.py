"""Noise on embeddings: its covariance, and its dependence on the secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.embedding_noise import EmbeddingNoise
from florist.common.synthetic.secret_draws import SecretDraws

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = SecretDraws.from_seed(5)
COUNT = 20_000


def real_rows(rows: int = 300, width: int = 16, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator).relu() * 3 + torch.arange(width)


def test_level_zero_is_the_identity() -> None:
    rows = real_rows()
    assert EmbeddingNoise(0.0, DRAWS)(rows, 0, 0) is rows
    with pytest.raises(ConfigurationError, match="negative"):
        EmbeddingNoise(-0.1, DRAWS)


def test_noise_has_the_configured_level_in_every_dimension() -> None:
    rows = real_rows(COUNT)
    noise = EmbeddingNoise(0.1, DRAWS)(rows, 0, 0) - rows
    ratio = noise.std(0) / rows.std(0, correction=0)
    assert (ratio / 0.1 - 1).abs().max() < 5 / np.sqrt(2 * COUNT)
    assert (noise.mean(0) / noise.std(0)).abs().max() < 5 / np.sqrt(COUNT)


def test_noise_is_proportional_in_each_principal_direction() -> None:
    mixing = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
    rows = real_rows(COUNT) @ mixing
    noise = EmbeddingNoise(0.5, DRAWS)(rows, 0, 0) - rows
    directions = torch.linalg.eigh(torch.cov(rows.T)).eigenvectors
    ratio = (noise @ directions).std(0) / (rows @ directions).std(0)
    assert (ratio / 0.5 - 1).abs().max() < 0.04


def test_noise_may_have_the_covariance_of_other_rows() -> None:
    rows, others = real_rows(COUNT), 4 * real_rows(500, seed=1)
    noise = EmbeddingNoise(0.1, DRAWS)(rows, 0, 0, like=others) - rows
    ratio = noise.std(0) / others.std(0, correction=0)
    assert (ratio / 0.1 - 1).abs().max() < 5 / np.sqrt(2 * COUNT)
    assert len(EmbeddingNoise(0.1, DRAWS)(rows[:0], 0, 0, like=others)) == 0


@pytest.mark.parametrize("rows", [2, 5, 40])
def test_noise_on_units_that_are_always_zero(rows: int) -> None:
    embeddings = real_rows(rows)
    embeddings[:, ::2] = 0
    noise = EmbeddingNoise(0.5, DRAWS)(embeddings, 0, 0) - embeddings
    assert noise.isfinite().all()
    assert noise[:, ::2].abs().max() < 0.05 * noise[:, 1::2].abs().max()
    assert torch.equal(EmbeddingNoise(0.5, DRAWS)(torch.ones(3, 4), 0, 0), torch.ones(3, 4))


def test_noise_depends_on_secret_and_context_only() -> None:
    rows = real_rows()
    noise = EmbeddingNoise(0.1, DRAWS)
    first = noise(rows, 0, 0)
    assert torch.equal(first, EmbeddingNoise(0.1, SecretDraws(DRAWS.secret))(rows, 0, 0))
    for other in (noise(rows, 0, 1), noise(rows, 1, 0), noise(rows, 0, 0, 1)):
        assert (first == other).double().mean() < 0.01
    assert not torch.equal(first, EmbeddingNoise(0.1, SecretDraws.from_seed(6))(rows, 0, 0))


def test_gradients_pass_through_noise_unchanged() -> None:
    rows = real_rows().requires_grad_()
    weights = torch.randn_like(rows)
    (EmbeddingNoise(0.5, DRAWS)(rows, 0, 0) * weights).sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad, weights)


def test_a_single_row_gets_noise_too() -> None:
    row = real_rows(1)
    noise = EmbeddingNoise(0.1, DRAWS)(row, 0, 0) - row
    size = float(row.square().mean().sqrt())
    assert 0.03 * size < float(noise.square().mean().sqrt()) < 0.3 * size
    assert EmbeddingNoise(0.1, DRAWS)(torch.empty(0, 16), 0, 0).shape == (0, 16)
