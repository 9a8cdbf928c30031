"""Values far above the scale of earlier ones are rejected."""

from __future__ import annotations

import pytest
import torch

from florist.common.core.errors import ProtocolViolation
from florist.common.training.row_codec import Diverged
from florist.common.training.scale_bound import FACTOR, ScaleBound


def block(value: float) -> torch.Tensor:
    rows = torch.zeros(4, 3)
    rows[2, 1] = value
    return rows


@pytest.mark.parametrize("sign", [1, -1])
def test_a_jump_is_a_violation_by_the_peer_and_a_divergence_at_home(sign: int) -> None:
    bound = ScaleBound.of_embeddings()
    bound.check_received(block(sign * 2.0), 0)
    with pytest.raises(ProtocolViolation, match="step 7: the peer's embeddings are more than"):
        bound.check_received(block(sign * 3 * FACTOR), 7)
    with pytest.raises(Diverged, match=r"training diverged.*step 7.*optimiser\.learning_rate"):
        bound.check_sent(block(sign * 3 * FACTOR), 7)


def test_the_first_gradients_are_bounded_by_the_size_of_the_batch() -> None:
    bound = ScaleBound.of_gradients(1000)
    bound.check_received(block(0.001), 0)
    with pytest.raises(ProtocolViolation, match="gradients"):
        bound.check_received(block(20.0), 0)


def test_values_may_grow_over_many_steps() -> None:
    bound, scale = ScaleBound.of_embeddings(), 1.0
    for step in range(400):
        scale *= 1.1
        bound.check_received(block(scale), step)
    assert scale > FACTOR**4


def test_zeros_do_not_lower_the_bound_without_limit() -> None:
    bound = ScaleBound.of_gradients(10)
    for step in range(5000):
        bound.check_received(block(0.0), step)
    bound.check_received(block(1.0), 5000)


def test_nan_is_rejected_and_an_empty_block_is_not() -> None:
    bound = ScaleBound.of_embeddings()
    bound.check_received(torch.zeros(0, 3), 0)
    with pytest.raises(ProtocolViolation):
        bound.check_received(block(float("nan")), 0)
