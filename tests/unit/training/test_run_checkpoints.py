"""Where a run broke off is kept beside the checkpoints that both parties make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from florist.common.training.checkpoint import Checkpoint
from florist.common.training.run_checkpoints import RunCheckpoints

if TYPE_CHECKING:
    from pathlib import Path


def checkpoint(step: int, value: int = 0) -> Checkpoint:
    return Checkpoint(step, {"x": torch.tensor([step])}, {"value": value})


def test_breaking_off_again_and_again_displaces_nothing(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    for step in (3, 6, 9):
        store.save(checkpoint(step))
    for step in (10, 11, 10, 11):
        store.save_interrupted(checkpoint(step))
        assert store.steps() == [6, 9, step]
        assert int(store.load(step).tensors["x"]) == step


def test_the_next_one_that_both_make_ends_it(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3))
    store.save_interrupted(checkpoint(5))
    store.save(checkpoint(6))
    assert store.steps() == [3, 6]


def test_one_that_both_make_is_not_made_twice(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3, value=1))
    store.save_interrupted(checkpoint(3, value=2))
    assert store.load(3).facts["value"] == 1


def test_all_are_cleared(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3))
    store.save_interrupted(checkpoint(4))
    store.clear()
    assert store.steps() == []
