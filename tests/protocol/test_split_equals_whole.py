"""The central check: with full overlap and no synthetic data, split training is plain training.

With several processes per party it equals training with one process each, whatever is synthetic.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from florist.active_party.training import make_active_half
from florist.common.data.features import Features
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.synthetic.label_strategies import class_frequencies
from florist.common.training.model_factory import make_active, make_bottom
from florist.common.training.models import start_at
from florist.common.training.optimisers import Optimisers
from florist.common.training.rate_schedule import RateSchedule
from florist.experiments.simulation import Holdings, SimulationSettings, Wiring, World, simulate
from florist.passive_party.training import make_passive_half

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.roles import RoleName
    from florist.common.stages.training_session import Trained
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel

H = TypeVar("H", bound="Half[Any]")

ROWS, CLASSES = 600, 3
CPU = torch.device("cpu")


def make_world(*, own: bool, classes: int = 2, seed: int = 0) -> World:
    random = np.random.default_rng(seed)
    cardinalities = (5, 40, 300)

    def features() -> Features:
        return Features(
            random.random((ROWS, 4), dtype=np.float32),
            np.stack([random.integers(0, c, ROWS) for c in cardinalities], 1).astype(np.int32),
        )

    return World(
        features(),
        random.integers(0, classes, ROWS),
        cardinalities,
        features() if own else None,
        cardinalities if own else (),
    )


def settings(**changes: object) -> SimulationSettings:
    agreement = TrainingAgreement.model_validate(
        {
            "epochs": 5,
            "batch_size": 64,
            "micro_batch": 64,
            "cut_width": 16,
            "embedding_noise": 0.0,
            "averaging": False,
            "checkpoint_every": 0,
            **changes,
        }
    )
    optimiser = Optimiser(learning_rate=1e-2)
    return SimulationSettings(agreement, Model(hidden=[24, 16], tower=[8]), optimiser, seed=3)


def plain(world: World, how: SimulationSettings, active: Trained, passive: Trained) -> list[float]:
    """Train the whole model in one loop, and compare its weights with those of the two halves."""
    agreement = how.agreement
    own = world.own_features
    bottom = make_bottom(
        how.model,
        numeric=4,
        cardinalities=world.cardinalities,
        cut_width=agreement.cut_width,
        wide=agreement.wide_outputs,
        device=CPU,
        seed=int.from_bytes(passive.run.draws.derive("weights").secret),
    )
    top = make_active(
        how.model,
        numeric=4 if own else 0,
        cardinalities=world.own_cardinalities,
        cut_width=agreement.cut_width,
        outputs=agreement.outputs,
        wide=agreement.wide,
        device=CPU,
        seed=int.from_bytes(active.run.draws.derive("weights").secret),
    )
    start_at(top.top.output, class_frequencies(world.labels, agreement.classes))
    rates = RateSchedule.agreed(agreement.resolved(ROWS), how.optimiser, ROWS)
    optimisers = [Optimisers(model, how.optimiser, rates) for model in (bottom, top)]
    row_of_rank = np.argsort(np.random.RandomState(how.seed).permutation(ROWS))
    schedule = active.run.schedule
    losses: list[float] = []
    for epoch in range(agreement.epochs):
        for step in range(schedule.steps_per_epoch):
            rows = row_of_rank[schedule.batch(epoch, step)]
            x = world.features.take(rows)
            embeddings = bottom(torch.from_numpy(x.numeric), torch.from_numpy(x.categories))
            extra = []
            if own:
                z = own.take(rows)
                extra = [torch.from_numpy(z.numeric), torch.from_numpy(z.categories)]
            logits = top(embeddings, *extra)
            labels = torch.from_numpy(world.labels[rows])
            if agreement.classes == 2:
                loss = binary_cross_entropy_with_logits(logits, labels.float())
            else:
                loss = cross_entropy(logits, labels)
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss.backward()
            for optimiser in optimisers:
                optimiser.step(len(losses))
            losses.append(loss.item())
    for model, half in ((bottom, passive.half), (top, active.half)):
        tensors, _ = half.state()
        for name, weight in model.state_dict().items():
            torch.testing.assert_close(tensors[f"model.{name}"], weight, rtol=1e-3, atol=1e-5)
    return losses


@pytest.mark.parametrize("own", [False, True], ids=["labels-only", "with-own-features"])
@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("micro_batch", [64, 20])
def test_split_training_is_plain_training(own: bool, masking: bool, micro_batch: int) -> None:  # noqa: FBT001
    world, everyone = make_world(own=own), np.arange(ROWS)
    how = settings(micro_batch=micro_batch, masking=masking)
    active, passive = simulate(world, Holdings(everyone, everyone), None, how)
    expected = plain(world, how, active, passive)
    assert len(expected) >= 50
    np.testing.assert_allclose(active.run.history.losses, expected, rtol=1e-5)


@pytest.mark.parametrize("own", [False, True], ids=["labels-only", "with-own-features"])
def test_without_a_wide_part_and_with_a_constant_rate(*, own: bool) -> None:
    world, everyone = make_world(own=own), np.arange(ROWS)
    how = settings(wide=False, stand_ins="plain", rate_schedule="constant")
    active, passive = simulate(world, Holdings(everyone, everyone), None, how)
    expected = plain(world, how, active, passive)
    np.testing.assert_allclose(active.run.history.losses, expected, rtol=1e-5)


def test_one_block_per_batch_is_exact() -> None:
    """The same operations on the same values in the same order give bitwise the same result."""
    world, everyone = make_world(own=False), np.arange(ROWS)
    how = settings(masking=False, calibration="none", epochs=2)
    active, passive = simulate(world, Holdings(everyone, everyone), None, how)
    np.testing.assert_allclose(
        active.run.history.losses, plain(world, how, active, passive), rtol=1e-6
    )


def test_several_classes() -> None:
    world, everyone = make_world(own=False, classes=CLASSES), np.arange(ROWS)
    how = settings(classes=CLASSES)
    active, passive = simulate(world, Holdings(everyone, everyone), None, how)
    expected = plain(world, how, active, passive)
    np.testing.assert_allclose(active.run.history.losses, expected, rtol=1e-5)


# --- several processes ---


def train_with(
    processes: dict[RoleName, int], how: SimulationSettings, *, own: bool
) -> tuple[Trained, Trained]:
    """Train with people that one of the parties lacks, and with a test table."""
    world, test = make_world(own=own), make_world(own=own, seed=1)
    wiring = Wiring(
        make_active=with_processes(make_active_half, processes.get("active", 1)),
        make_passive=with_processes(make_passive_half, processes.get("passive", 1)),
    )
    holdings = Holdings(np.arange(400), np.arange(200, ROWS))
    return simulate(world, holdings, test, how, wiring=wiring)


def with_processes(
    make: Callable[[HalfSetup, Channel, Run], H], processes: int
) -> Callable[[HalfSetup, Channel, Run], H]:
    """Make a half that trains with several processes."""
    return lambda setup, channel, run: make(replace(setup, processes=processes), channel, run)


def assert_close(several: tuple[Trained, Trained], one: tuple[Trained, Trained]) -> None:
    histories = several[0].run.history, one[0].run.history
    assert len(histories[1].losses) >= 30
    np.testing.assert_allclose(histories[0].losses, histories[1].losses, rtol=1e-5)
    for found, expected in zip(histories[0].epochs, histories[1].epochs, strict=True):
        assert expected.auc is not None
        assert asdict(found) == pytest.approx(asdict(expected), rel=1e-4)
    for ours, theirs in zip(several, one, strict=True):
        expected_state, _ = theirs.half.state()
        for name, tensor in ours.half.state()[0].items():
            torch.testing.assert_close(tensor, expected_state[name], rtol=1e-3, atol=1e-5)


def test_several_processes_per_party_train_like_one() -> None:
    """With masking, a prior, sparse tables, noise and averaged weights, and reproducibly."""
    how = replace(
        # Large micro-batches: the noise of a few rows would depend on their last bits.
        settings(batch_size=100, micro_batch=70, embedding_noise=0.3, averaging=True),
        model=Model(hidden=[24, 16], tower=[8], embedding_updates="sparse"),
    )
    several, again = (train_with({"active": 2, "passive": 2}, how, own=True) for _ in range(2))
    assert_close(several, train_with({}, how, own=True))
    for first, second in zip(several, again, strict=True):
        assert first.run.history.losses == second.run.history.losses
        assert first.run.history.epochs == second.run.history.epochs
        tensors, _ = second.half.state()
        assert all(torch.equal(each, tensors[name]) for name, each in first.half.state()[0].items())


def test_strategies_use_the_rows_of_all_processes() -> None:
    """Some need the whole batch: its nearest rows, or its longest embedding."""
    how = settings(
        epochs=3,
        masking=False,
        labels={"strategy": "label-neighbors"},
        features={"strategy": "fea-gaussian"},
        stand_ins="plain",
    )
    assert_close(train_with({"passive": 2}, how, own=False), train_with({}, how, own=False))
