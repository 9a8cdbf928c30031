"""The checkpoint of an interrupted step is stored beside the regular checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from florist.common.training.history import EpochFigures, History
from florist.common.training.run_checkpoints import RunCheckpoint, RunCheckpoints
from florist.common.training.run_facts import HalfFacts, OptimiserFacts, RunFacts

if TYPE_CHECKING:
    from pathlib import Path


def facts(secret: str = "") -> RunFacts:
    return RunFacts(
        half=HalfFacts(OptimiserFacts("adam", ["table.weight"])),
        seed="ab" * 32,
        secret=secret,
        history=History([0.1, 1 / 3], [EpochFigures(0, 0.5, auc=0.75)], 1.5, 0.25, 0.125, 64),
        identity={"union": "cd" * 32},
    )


def checkpoint(step: int, secret: str = "") -> RunCheckpoint:
    return RunCheckpoint(step, {"x": torch.tensor([step])}, facts(secret))


def test_facts_are_loaded_as_saved(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3))
    assert store.load(3).facts == facts()


def test_facts_do_not_show_their_secrets() -> None:
    text = repr(facts(secret="hidden"))
    assert "hidden" not in text
    assert "abab" not in text
    assert repr(checkpoint(3)) == "RunCheckpoint(step=3)"


def test_repeated_interruptions_replace_no_regular_checkpoint(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    for step in (3, 6, 9):
        store.save(checkpoint(step))
    for step in (10, 11, 10, 11):
        store.save_interrupted(checkpoint(step))
        assert store.steps() == [6, 9, step]
        assert int(store.load(step).tensors["x"]) == step


def test_the_next_regular_checkpoint_deletes_the_interrupted_one(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3))
    store.save_interrupted(checkpoint(5))
    store.save(checkpoint(6))
    assert store.steps() == [3, 6]


def test_a_regular_checkpoint_of_the_interrupted_step_is_kept(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3, secret="1"))
    store.save_interrupted(checkpoint(3, secret="2"))
    assert store.load(3).facts.secret == "1"


def test_clear_deletes_all_checkpoints(tmp_path: Path) -> None:
    store = RunCheckpoints(tmp_path, keep=2)
    store.save(checkpoint(3))
    store.save_interrupted(checkpoint(4))
    store.clear()
    assert store.steps() == []
