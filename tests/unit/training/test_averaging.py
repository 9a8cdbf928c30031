"""The average of the weights: its formula, applying it, and resuming."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from florist.common.training.averaging import DECAY, WeightAverage


def models(steps: int) -> list[torch.Tensor]:
    """Return the weights after each step of a run."""
    generator = torch.Generator().manual_seed(steps)
    return [torch.randn(3, 2, generator=generator) for _ in range(steps)]


def averaged(model: nn.Linear, along: list[torch.Tensor]) -> WeightAverage:
    average = WeightAverage(model, on=True)
    for weights in along:
        model.weight.data.copy_(weights)
        average.update()
    return average


def reference_mean(along: list[torch.Tensor]) -> torch.Tensor:
    """Weight step `i` by its share, times what the later shares leave of it."""
    total = torch.zeros(3, 2)
    for i, weights in enumerate(along, 1):
        left = 1.0
        for later in range(i + 1, len(along) + 1):
            left *= 1 - (1 + DECAY) / (later + DECAY)
        total += (1 + DECAY) / (i + DECAY) * left * weights
    return total


@pytest.mark.parametrize("steps", [1, 2, 7, 60])
def test_the_average_equals_the_reference(steps: int) -> None:
    model, along = nn.Linear(2, 3), models(steps)
    averaged(model, along).apply()
    torch.testing.assert_close(model.weight.data, reference_mean(along))


def test_weights_of_the_steps_sum_to_one() -> None:
    model = nn.Linear(2, 3)
    averaged(model, [torch.full((3, 2), 5.0)] * 40).apply()
    torch.testing.assert_close(model.weight.data, torch.full((3, 2), 5.0))


def test_the_last_tenth_of_the_steps_dominates() -> None:
    model = nn.Linear(2, 3)
    along = [torch.zeros(3, 2)] * 900 + [torch.ones(3, 2)] * 100
    averaged(model, along).apply()
    assert 0.55 < float(model.weight.data[0, 0]) < 0.75


def test_own_weights_are_restored_after_use() -> None:
    model, along = nn.Linear(2, 3), models(9)
    average = averaged(model, along)
    with average.applied():
        torch.testing.assert_close(model.weight.data, reference_mean(along))
    assert torch.equal(model.weight.data, along[-1])


def test_own_weights_are_restored_after_an_error() -> None:
    model, along = nn.Linear(2, 3), models(9)
    with pytest.raises(ZeroDivisionError), averaged(model, along).applied():
        raise ZeroDivisionError
    assert torch.equal(model.weight.data, along[-1])


def test_a_resumed_average_is_bitwise_the_same() -> None:
    along = models(30)
    model, whole = nn.Linear(2, 3), nn.Linear(2, 3)
    averaged(whole, along).apply()
    first = averaged(model, along[:13])
    kept = {name: value.clone() for name, value in first.state().items()}
    second = WeightAverage(model, on=True)
    second.restore(kept)
    for weights in along[13:]:
        model.weight.data.copy_(weights)
        second.update()
    second.apply()
    assert torch.equal(model.weight.data, whole.weight.data)


def test_off_changes_nothing() -> None:
    model = nn.Linear(2, 3)
    average = WeightAverage(model, on=False)
    before = model.weight.data.clone()
    model.weight.data += 1
    average.update()
    average.apply()
    assert average.state() == {}
    average.restore({})
    assert torch.equal(model.weight.data, before + 1)


def test_without_a_step_the_weights_do_not_change() -> None:
    model = nn.Linear(2, 3)
    average = WeightAverage(model, on=True)
    model.weight.data += 1
    now = model.weight.data.clone()
    average.apply()
    assert torch.equal(model.weight.data, now)


def test_sparse_tables_are_left_out() -> None:
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1))
    assert "0.weight" not in WeightAverage(model, on=True).state()
    assert "1.weight" in WeightAverage(model, on=True).state()
