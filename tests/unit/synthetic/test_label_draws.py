"""The secret draws behind labels, and the targets that are kept as first drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.synthetic.label_draws import KeptTargets, LabelDraws
from florist.common.synthetic.secret_draws import SecretDraws

DRAWS = SecretDraws.from_seed(5)


@given(
    st.lists(st.integers(0, 10**9), max_size=20, unique=True),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_sticky_draws_never_change(ranks: list[int], samples: int, epoch: int) -> None:
    draws = LabelDraws(DRAWS, samples)
    at = np.array(ranks, dtype=np.int64)
    uniforms = draws.for_rows(at, epoch)
    assert uniforms.shape == (len(ranks), samples)
    assert torch.equal(uniforms, draws.for_rows(at, 0))
    assert torch.equal(uniforms.flip(0), draws.for_rows(at[::-1], epoch))
    assert len(set(uniforms.flatten().tolist())) == uniforms.numel()


def test_redrawn_draws_change_with_the_epoch_only() -> None:
    draws = LabelDraws(DRAWS, 2, sticky=False)
    ranks = np.arange(1000)
    first, second = draws.for_rows(ranks, 0), draws.for_rows(ranks, 1)
    assert torch.equal(first, draws.for_rows(ranks, 0))
    assert not (first == second).any()
    assert abs(np.corrcoef(first.flatten(), second.flatten())[0, 1]) < 0.12
    with pytest.raises(ConfigurationError, match="samples"):
        LabelDraws(DRAWS, 0)


@pytest.mark.parametrize("classes", [2, 3])
def test_kept_targets_are_those_first_drawn(classes: int) -> None:
    kept = KeptTargets(6, classes)
    shape = (3,) if classes == 2 else (3, classes)
    first, second = torch.zeros(shape), torch.ones(shape)
    assert torch.equal(kept.settle(torch.tensor([0, 2, 4]), first), first)
    again = kept.settle(torch.tensor([4, 5, 0]), second)
    assert torch.equal(again, torch.stack([first[0], second[0], first[0]]))
    resumed = KeptTargets(6, classes)
    resumed.restore(kept.state())
    assert torch.equal(resumed.settle(torch.tensor([5, 2, 1]), first)[0], second[0])


def test_a_mean_of_samples_is_kept() -> None:
    kept = KeptTargets(2, 2)
    kept.settle(torch.tensor([1]), torch.tensor([0.25]))
    assert kept.settle(torch.tensor([1]), torch.tensor([0.75])).tolist() == [0.25]
