"""A simulation gives the same model as two processes over mutual TLS with equal seeds and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from florist.common.data.preprocessing import Preprocessing
from florist.common.settings.loader import load_config
from florist.common.training.history import History
from florist.experiments.simulation import (
    Holdings,
    SimulationSettings,
    Union,
    World,
    observe,
)
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.stages.training_session import Trained
    from florist.experiments.simulation import Observed


@dataclass(frozen=True)
class ExactClicks(QuickClicks):
    """Without padding: a simulation has the exact sizes."""

    def settings(self, role: RoleName) -> dict[str, object]:
        settings = {
            key: value
            for key, value in QuickClicks.settings(self, role).items()
            if not key.startswith("agreement.union.privacy")
        }
        return settings | {
            "agreement.union.privacy": None,
            "agreement.union.planted_pairs": 0,
            "privacy.budget": None,
        }


SAMPLE = ExactClicks()
#: Seed of the simulation; the parties' seeds are derived from it.
SEED = 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace.create(tmp_path_factory.mktemp("pair") / "pair", SAMPLE)
    workspace.configure("active", {"training.seed": 2 * SEED})
    workspace.configure("passive", {"training.seed": 2 * SEED + 1})
    with (
        workspace.start("active", stage="all") as active,
        workspace.start("passive", stage="all") as passive,
    ):
        assert (active.finish(100), passive.finish()) == (0, 0)
    return workspace


@pytest.fixture(scope="module")
def simulated(trained: Workspace) -> Observed:
    return simulate_as(trained, SEED)


def simulate_as(trained: Workspace, seed: int) -> Observed:
    """Simulate with the parties' settings and ranks."""
    data, who = SAMPLE.data()
    fitted = Preprocessing.load(trained.run_directory("passive").training / "preprocessing")

    def world(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> World:
        return World(fitted.transform(data.raw(rows)), data.labels[rows], fitted.cardinalities)

    alignments = {role: trained.alignment(role) for role in ("active", "passive")}
    rank_of = np.full(len(data), -1, dtype=np.int64)
    rank_of[who.active] = alignments["active"].rank_of_row
    rank_of[who.passive] = alignments["passive"].rank_of_row
    assert np.array_equal(rank_of[who.active], alignments["active"].rank_of_row)  # of one union
    summary = alignments["active"].summary
    config = load_config(trained.config("passive"))
    return observe(
        world(np.arange(len(data))),
        Holdings(who.active, who.passive),
        world(who.test),
        SimulationSettings(config.agreement.training, config.model, config.optimiser, seed),
        union=Union(rank_of, summary.union_size, bytes.fromhex(summary.union_sha256)),
    )


def of(simulated: Observed, role: RoleName) -> Trained:
    return simulated.active if role == "active" else simulated.passive


@pytest.mark.parametrize("role", ["active", "passive"])
def test_the_weights_are_the_same(trained: Workspace, simulated: Observed, role: RoleName) -> None:
    """They are equal bit for bit."""
    saved = load_file(_training(trained, role) / "model.safetensors")
    tensors, _ = of(simulated, role).half.state()
    ours = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    assert {name.removeprefix("model.") for name in ours} == saved.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, saved[name.removeprefix("model.")]), name


def test_the_losses_and_metrics_are_the_same(trained: Workspace, simulated: Observed) -> None:
    network = History.from_json(trained.run_directory("active").load_history())
    ours = simulated.active.run.history
    assert len(network.losses) > 20
    assert ours.losses == network.losses
    for mine, theirs in zip(ours.epochs, network.epochs, strict=True):
        assert mine.loss == theirs.loss
        assert mine.auc == pytest.approx(theirs.auc, abs=1e-9)
        # The test people are in a different order, so sums are rounded differently.
        assert mine.ace == pytest.approx(theirs.ace, abs=1e-6)
        assert mine.log_loss == pytest.approx(theirs.log_loss, abs=1e-6)


def test_another_seed_gives_another_model(trained: Workspace, simulated: Observed) -> None:
    """This shows that the tests above could fail."""
    other = simulate_as(trained, SEED + 1)
    assert other.active.run.history.losses != simulated.active.run.history.losses


def _training(workspace: Workspace, role: RoleName) -> Path:
    return workspace.run_directory(role).training
