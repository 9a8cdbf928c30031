"""A half that is saved and loaded resumes as if it had never stopped."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
import torch
from pydantic import TypeAdapter

from florist.common.core.errors import ConfigurationError
from florist.common.settings.training import Optimiser, OptimiserName
from florist.common.training.checkpoint import Checkpoint, CheckpointStore
from florist.common.training.half_state import pack, tensors_of, unpack
from florist.common.training.models import BottomModel
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule
from florist.common.training.run_facts import HalfFacts

if TYPE_CHECKING:
    from pathlib import Path

Half = tuple[BottomModel, Optimisers]


def make_half(
    name: OptimiserName = "adam", *, sparse: bool = False, width: int = 6, seed: int = 0
) -> Half:
    model = BottomModel(
        numeric=2,
        cardinalities=(5, 30),
        embedding_width=3,
        layers=[width, 4],
        sparse=sparse,
        seed=seed,
    )
    momentum = 0.9 if name == "sgd" else 0.0
    return model, Optimisers(
        model, Optimiser(name=name, momentum=momentum), RateSchedule(0.1, 1, "constant")
    )


def train(half: Half, steps: range) -> None:
    model, optimisers = half
    for step in steps:
        random = torch.Generator().manual_seed(step)
        categories = torch.stack([torch.randint(c, (9,), generator=random) for c in (5, 30)], 1)
        optimisers.zero_grad()
        model(torch.rand(9, 2, generator=random), categories).square().mean().backward()
        optimisers.step(0)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_resumed_half_is_bitwise_the_same(
    tmp_path: Path, name: OptimiserName, stop: int, *, sparse: bool
) -> None:
    undisturbed, stopped = make_half(name, sparse=sparse), make_half(name, sparse=sparse)
    train(undisturbed, range(6))
    train(stopped, range(stop))
    tensors, facts = pack(*stopped)
    store = CheckpointStore(tmp_path, keep=1)
    store.save(Checkpoint(stop, tensors, asdict(facts)))
    loaded = store.load(stop)

    another = make_half(name, sparse=sparse, seed=1)
    train(another, range(10, 13))
    loaded_facts = TypeAdapter(HalfFacts).validate_python(loaded.facts)
    unpack(dict(loaded.tensors), loaded_facts, *another)
    train(another, range(stop, 6))
    expected, expected_facts = pack(*undisturbed)
    found, found_facts = pack(*another)
    assert found_facts == expected_facts
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(found[key], tensor), key


def test_names_of_different_groups_do_not_collide() -> None:
    extra = {"mean": torch.ones(2), "model.mean": torch.zeros(2)}
    tensors, _ = pack(*make_half(), strategy=extra)
    assert tensors_of("strategy", tensors).keys() == extra.keys()
    assert all(
        torch.equal(tensor, extra[key]) for key, tensor in tensors_of("strategy", tensors).items()
    )
    assert tensors_of("model", tensors).keys() == dict(make_half()[0].state_dict()).keys()
    assert tensors_of("mode", tensors) == {}


@pytest.mark.parametrize("further", [{"width": 7}, {"sparse": True}, {"name": "sgd"}])
def test_a_different_model_or_optimiser_is_refused(further: dict[str, object]) -> None:
    half = make_half()
    train(half, range(2))
    another = make_half(**further)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"checkpoint is of a different (model|optimiser)"):
        unpack(*pack(*half), *another)


def test_missing_weights_are_refused() -> None:
    tensors, facts = pack(*make_half())
    del tensors["model.layers.0.bias"]
    with pytest.raises(ConfigurationError, match="a different model"):
        unpack(tensors, facts, *make_half())
