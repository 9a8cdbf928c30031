"""Both parties in one process over the in-memory link: the same role code, none of the network.

Takes everybody's features and labels and who is whose, which no real party knows. The baselines of
the paper are runs like any other, on other people: `baseline-full` gives everyone to both parties,
`baseline-partial` gives both the intersection.
"""

from __future__ import annotations

import hashlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from florist.active_party.training import make_active_half
from florist.common.channel.in_memory import linked_pair
from florist.common.errors import as_florist_error
from florist.common.progress import NoProgress
from florist.common.psu.alignment import Sizes
from florist.common.train_session import HalfSetup, RunSetup, train_with_peer
from florist.common.training.checkpoint import CheckpointStore
from florist.common.training.feed import Membership
from florist.common.training.parts import TableParts, TrainingParts
from florist.passive_party.training import make_passive_half

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from florist.common.agreement import TrainingAgreement
    from florist.common.channel.channel import Channel, Link
    from florist.common.data.features import Features
    from florist.common.role import RoleName
    from florist.common.train_session import Trained
    from florist.common.training.loop import Half, Run
    from florist.common.training.settings import Model, Optimiser

    Rows = npt.NDArray[np.int64]
    MakeHalf = Callable[[HalfSetup, Channel, Run], Half[Any]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class World:
    """Everybody: the passive party's features, the labels, and the active party's features."""

    features: Features
    labels: npt.NDArray[np.int64]
    cardinalities: tuple[int, ...]
    own_features: Features | None = None
    own_cardinalities: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Holdings:
    """Whose row of the world is whose."""

    active: Rows
    passive: Rows

    @property
    def shared(self) -> Holdings:
        """What `baseline-partial` trains on."""
        both = np.intersect1d(self.active, self.passive)
        return Holdings(both, both)


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How both halves are made and trained."""

    agreement: TrainingAgreement
    model: Model
    optimiser: Optimiser
    seed: int = 0


def simulate(
    world: World, holdings: Holdings, test: World | None, settings: SimulationSettings
) -> tuple[Trained, Trained]:
    """Train as the active and the passive party would, aligned as by the union; both results."""
    torch.set_num_threads(1)  # the parties are two threads already
    links = linked_pair()
    setups = {
        "active": _setup(world, holdings, test, settings, "active"),
        "passive": _setup(world, holdings, test, settings, "passive"),
    }
    digest = hashlib.sha256(repr(settings.seed).encode()).digest()

    def side(role: RoleName, link: Link, make: MakeHalf, folder: Path) -> Trained:
        run_setup = RunSetup(
            union_sha256=digest,
            store=CheckpointStore(folder / role, keep=1),
            identity={},
            seed=2 * settings.seed + (role == "passive"),
        )
        try:
            return train_with_peer(link, role, make, setups[role], run_setup, NoProgress())
        except BaseException as error:
            link.fail(as_florist_error(error))
            raise

    with tempfile.TemporaryDirectory(prefix="florist-") as folder, ThreadPoolExecutor(2) as both:
        active = both.submit(side, "active", links[0], make_active_half, Path(folder))
        passive = both.submit(side, "passive", links[1], make_passive_half, Path(folder))
        results = active.result(), passive.result()
    for link in links:
        link.close()
    return results


def _setup(
    world: World,
    holdings: Holdings,
    test: World | None,
    settings: SimulationSettings,
    role: RoleName,
) -> HalfSetup:
    everyone = np.union1d(holdings.active, holdings.passive)
    # As after the union: positions that say nothing of the order in a table.
    rank_of = np.full(len(world.labels), -1, dtype=np.int64)
    rank_of[everyone] = np.random.RandomState(settings.seed).permutation(len(everyone))
    own, peer = (
        (holdings.active, holdings.passive)
        if role == "active"
        else (holdings.passive, holdings.active)
    )
    train = TableParts(
        Membership.of(rank_of[own], len(everyone)),
        Sizes(len(own), len(peer), len(everyone)),
        *_columns(world, own, role),
    )
    test_parts = None
    if test is not None:
        rows = np.arange(len(test.labels))
        test_parts = TableParts(
            Membership.of(rows, len(rows)),
            Sizes(len(rows), len(rows), len(rows)),
            *_columns(test, rows, role),
        )
    features = world.own_features if role == "active" else world.features
    return HalfSetup(
        TrainingParts(settings.agreement, torch.device("cpu"), train, test_parts),
        numeric=features.numeric.shape[1] if features else 0,
        cardinalities=world.own_cardinalities if role == "active" else world.cardinalities,
        model=settings.model,
        optimiser=settings.optimiser,
    )


def _columns(
    world: World, rows: Rows, role: RoleName
) -> tuple[Features | None, npt.NDArray[np.int64] | None]:
    if role == "active":
        own = world.own_features.take(rows) if world.own_features is not None else None
        return own, world.labels[rows]
    return world.features.take(rows), None
