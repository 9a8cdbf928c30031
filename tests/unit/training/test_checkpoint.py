"""Checkpoints load as saved, and a store survives being killed at any moment."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import torch
from safetensors import SafetensorError

from florist.common.core.errors import ConfigurationError
from florist.common.settings.training import Optimiser
from florist.common.training import checkpoint as checkpoint_module
from florist.common.training.checkpoint import FORMAT, Checkpoint, CheckpointStore
from florist.common.training.half_state import pack, tensors_of, unpack
from florist.common.training.models import BottomModel
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule

if TYPE_CHECKING:
    from collections.abc import Callable


def checkpoint(step: int, **facts: object) -> Checkpoint:
    return Checkpoint(step, {"weights": torch.full((4,), float(step))}, {"at": step, **facts})


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


def tensor_file(store: CheckpointStore, step: int) -> Path:
    (found,) = store.directory.glob(f"step-{step:09d}-*.safetensors")
    return found


def manifest_file(store: CheckpointStore, step: int) -> Path:
    return store.directory / f"step-{step:09d}.json"


# --- saving and loading ---


def test_tensors_of_every_kind_load_as_saved(store: CheckpointStore) -> None:
    shared = torch.rand(6, 4)
    tensors = {
        "float": torch.randn(3, 5),
        "bfloat": torch.randn(7).to(torch.bfloat16),
        "int": torch.tensor([2**62, -1]),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "strided": shared.T,
        "view": shared[2:4],
        "same": shared,
        "again": shared,
        "learnt": torch.nn.Parameter(torch.rand(2)),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    store.save(Checkpoint(5, tensors, {}))
    loaded = store.load(5)
    assert loaded.step == 5
    assert loaded.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        there = loaded.tensors[name]
        assert there.dtype == value.dtype
        assert there.shape == value.shape
        torch.testing.assert_close(there, value.detach(), rtol=0, atol=0, equal_nan=True)
    loaded.tensors["float"].add_(1)  # they are writable


def test_facts_load_as_saved(store: CheckpointStore) -> None:
    facts = {
        "seed": 2**255 + 1,
        "losses": [0.1, 1 / 3, 5e-324, 1.7976931348623157e308],
        "schedule": {"epoch": 2, "step": None, "done": False},
        "name": 'µ "\n',
    }
    store.save(Checkpoint(0, {}, facts))
    assert store.load(0).facts == facts
    assert store.load(0).tensors == {}


def test_tuples_and_integer_keys_in_facts_become_json(store: CheckpointStore) -> None:
    facts: dict[str, Any] = {"epochs": {10: "a", 9: "b"}, "pair": (1, 2)}
    store.save(Checkpoint(1, {}, facts))
    assert store.load(1).facts == {"epochs": {"10": "a", "9": "b"}, "pair": [1, 2]}


@pytest.mark.parametrize("fact", [float("nan"), b"bytes", torch.tensor(1)])
def test_facts_that_are_not_json_are_refused_before_writing(
    store: CheckpointStore, fact: object
) -> None:
    with pytest.raises((TypeError, ValueError)):
        store.save(checkpoint(1, fact=fact))
    assert store.steps() == []


def test_the_repr_shows_no_secrets() -> None:
    assert repr(checkpoint(3, seed="secret")) == "Checkpoint(step=3)"


def test_model_and_optimiser_load_their_own_tensors(store: CheckpointStore) -> None:
    model = BottomModel(
        numeric=2, cardinalities=[5], embedding_width=2, layers=[4], sparse=True, seed=0
    )
    optimisers = Optimisers(model, Optimiser(), RateSchedule(1e-3, 1, "constant"))
    model(torch.rand(3, 2), torch.tensor([[0], [1], [1]])).sum().backward()
    optimisers.step(0)
    moments, _ = optimisers.state()
    tensors, facts = pack(model, optimisers)
    store.save(Checkpoint(1, tensors, {}))
    loaded = store.load(1)
    assert tensors_of("model", dict(loaded.tensors)).keys() == model.state_dict().keys()
    assert tensors_of("nobody", dict(loaded.tensors)) == {}
    unpack(dict(loaded.tensors), facts, model, optimisers)
    for name, value in optimisers.state()[0].items():
        assert torch.equal(value, moments[name])


def test_only_the_owner_has_access(store: CheckpointStore) -> None:
    store.directory.mkdir(mode=0o755)
    old = os.umask(0)
    try:
        store.save(checkpoint(1))
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in store.directory.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


# --- listing and pruning ---


def test_an_empty_store(store: CheckpointStore) -> None:
    assert store.steps() == []
    store.prune()
    with pytest.raises(ConfigurationError, match="no checkpoint of step 4"):
        store.load(4)


def test_the_newest_checkpoints_are_kept(store: CheckpointStore) -> None:
    for step in (1, 2, 1000, 10**9, 10**10):
        store.save(checkpoint(step))
    assert store.steps() == [1000, 10**9, 10**10]
    assert len(names(store)) == 6
    CheckpointStore(store.directory, keep=1).prune()
    assert store.steps() == [10**10]
    assert len(names(store)) == 2
    with pytest.raises(ValueError, match="at least one"):
        CheckpointStore(store.directory, keep=0)


def test_saving_a_step_again_replaces_its_checkpoint(store: CheckpointStore) -> None:
    store.save(checkpoint(1, run=1))
    store.save(Checkpoint(1, {"weights": torch.zeros(9)}, {"run": 2}))
    assert store.load(1).facts == {"run": 2}
    assert store.load(1).tensors["weights"].shape == (9,)
    assert len(names(store)) == 2


def test_saving_an_earlier_step_deletes_later_checkpoints(store: CheckpointStore) -> None:
    for step in (10, 20, 30):
        store.save(checkpoint(step))
    store.save(checkpoint(15))
    assert store.steps() == [10, 15]
    assert len(names(store)) == 4


def test_clear_deletes_all_checkpoints(store: CheckpointStore) -> None:
    store.clear()
    store.save(checkpoint(1))
    store.save(checkpoint(2))
    store.clear()
    assert store.steps() == []
    assert names(store) == []


def test_unrelated_files_are_not_touched(store: CheckpointStore) -> None:
    store.save(checkpoint(1))
    for name in ("notes.txt", "step-1.json", "step-000000001.json.orig", "model.safetensors"):
        (store.directory / name).write_text("{}")
    for step in range(2, 9):
        store.save(checkpoint(step))
    assert len(names(store)) == 6 + 4


# --- damage ---


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_in_the_tensors_is_refused(store: CheckpointStore) -> None:
    store.save(checkpoint(1))
    path = tensor_file(store, 1)
    flip(path)
    with pytest.raises(ConfigurationError, match=f"{path.name} is damaged.*older checkpoint"):
        store.load(1)


def change_fact(path: Path) -> None:
    path.write_text(path.read_text().replace('"at": 1', '"at": 2'))


@pytest.mark.parametrize(
    ("which", "damage"),
    [
        (manifest_file, change_fact),
        (manifest_file, lambda path: path.write_text("")),
        (manifest_file, lambda path: path.write_text("[1]")),
        (manifest_file, lambda path: path.write_text('{"format": 1}')),
        (manifest_file, lambda path: path.write_bytes(b"\xff")),
        (tensor_file, truncate),
        (tensor_file, Path.unlink),
    ],
)
def test_a_damaged_checkpoint_is_neither_listed_nor_loaded(
    store: CheckpointStore,
    which: Callable[[CheckpointStore, int], Path],
    damage: Callable[[Path], object],
) -> None:
    store.save(checkpoint(1))
    store.save(checkpoint(2))
    damage(which(store, 1))
    assert store.steps() == [2]
    with pytest.raises(ConfigurationError, match=r"step-000000001.*the run resumes from an older"):
        store.load(1)


def test_pruning_keeps_the_newest_loadable_checkpoint(store: CheckpointStore) -> None:
    for step in (1, 2, 3):
        store.save(checkpoint(step))
    flip(tensor_file(store, 3))
    last = CheckpointStore(store.directory, keep=1)
    last.prune()
    assert store.steps() == [2, 3]
    assert last.load(2).facts == {"at": 2}
    last.save(checkpoint(3))
    assert last.steps() == [3]
    assert last.load(3).facts == {"at": 3}


def test_pruning_keeps_tensors_whose_manifest_is_damaged(store: CheckpointStore) -> None:
    store.save(checkpoint(1))
    manifest_file(store, 1).write_text("")
    store.prune()
    assert tensor_file(store, 1).exists()


def test_a_newer_format_is_reported_and_nothing_is_deleted(store: CheckpointStore) -> None:
    store.save(checkpoint(1))
    path = manifest_file(store, 1)
    values = json.loads(path.read_text()) | {"format": FORMAT + 1}
    del values["sha256"]  # the other format may not have it
    path.write_text(json.dumps(values))
    before = names(store)
    for action in (store.steps, lambda: store.load(1), lambda: store.save(checkpoint(2))):
        with pytest.raises(ConfigurationError, match=rf"{path.name} has format {FORMAT + 1}"):
            action()
    assert names(store) == before


# --- killed or failing during a save ---


class Killed(BaseException):
    """An exception that no handler catches."""


def die_at(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> None:
    """Raise `error` in the given call of those that change the disk."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count == call:
                raise error
            return real(*arguments, **options)

        return run

    for owner, name in (
        (checkpoint_module, "write_tensors"),
        (Path, "mkdir"),
        (Path, "write_text"),
        (Path, "chmod"),
        (Path, "replace"),
        (Path, "unlink"),
        (os, "fsync"),
        (shutil, "rmtree"),
    ):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@pytest.mark.parametrize("call", range(1, 19))
@pytest.mark.parametrize("step", [2, 3])
def test_being_killed_in_any_call_leaves_a_consistent_store(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, step: int, call: int
) -> None:
    """Save the same step again, or the next one, with an old one to delete."""
    store = CheckpointStore(store.directory, keep=1)
    store.save(checkpoint(2, run=1))
    with monkeypatch.context() as patch:
        die_at(patch, call, Killed())
        try:
            store.save(checkpoint(step, run=2))
        except Killed:
            finished = False
        else:
            finished = True
    newest = store.load(store.steps()[-1])
    assert newest.facts in ({"at": 2, "run": 1}, {"at": step, "run": 2})
    if finished:
        assert newest.facts["run"] == 2
    assert newest.tensors["weights"].tolist() == [float(newest.step)] * 4
    store.save(checkpoint(4))
    assert store.steps() == [4]
    assert len(names(store)) == 2


@pytest.mark.parametrize("call", range(1, 12))
def test_a_full_disk_is_reported_and_keeps_the_old_checkpoint(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    store.save(checkpoint(1))
    before = names(store)
    with monkeypatch.context() as patch:
        die_at(patch, call, OSError(28, "No space left on device"))
        with pytest.raises(ConfigurationError, match="No space left on device"):
            store.save(checkpoint(2))
    assert names(store) == before
    assert store.load(1).facts == {"at": 1}


#: The child saves in an endless loop; the parent kills it repeatedly and checks the store. It forks
#: before any thread exists, so that torch is imported only once.
KILLED_AT_RANDOM = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from florist.common.training.checkpoint import Checkpoint, CheckpointStore

torch.set_num_threads(1)
store = CheckpointStore(Path(sys.argv[1]), keep=2)

def made(step):
    return Checkpoint(step, {"weights": torch.full((20000,), float(step))}, {"at": step})

store.save(made(0))
reached, delay = 0, 0.02  # a slow machine gets more time
for _ in range(60):
    child = os.fork()
    if child == 0:
        step = reached
        while True:
            store.save(made(step))
            step += 1
    time.sleep(random.uniform(0, delay))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    steps = store.steps()
    assert steps and steps[-1] >= reached, (steps, reached)
    for step in steps:
        loaded = store.load(step)
        assert loaded.facts == {"at": step}
        assert torch.equal(loaded.tensors["weights"], made(step).tensors["weights"])
    delay *= 1.0 if steps[-1] > reached else 1.1
    reached = steps[-1]
assert reached > 0
store.save(made(reached + 1))
assert store.steps() == [reached, reached + 1], (store.steps(), reached)
assert len(os.listdir(sys.argv[1])) == 4, os.listdir(sys.argv[1])
"""


def test_killed_at_random_moments(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", KILLED_AT_RANDOM, str(tmp_path / "killed")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_errors_of_the_tensor_library_are_reported(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "write_tensors", fail_as_safetensors)
    with pytest.raises(ConfigurationError, match=r"step-000000001\.json cannot be written: full"):
        store.save(checkpoint(1))
    assert names(store) == []


def fail_as_safetensors(*_: object) -> NoReturn:
    raise SafetensorError("full")


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written: Not a directory"):
        CheckpointStore(tmp_path / "file" / "checkpoints", keep=1).save(checkpoint(1))
