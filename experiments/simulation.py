"""Simulates both parties in one process with the real role code and an in-memory link.

A simulation knows all features, all labels and who is in which table, which no real party does. The
paper's baselines are ordinary runs on other people: `baseline-full` gives everybody to both
parties, `baseline-partial` gives both the intersection.
"""

from __future__ import annotations

import hashlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from florist.active_party.training import make_active_half
from florist.common.audit.recorded_view import as_active, passive_view
from florist.common.audit.view import OwnFeatures
from florist.common.core.errors import as_florist_error
from florist.common.core.progress import NoProgress
from florist.common.session.union_sizes import UnionSizes
from florist.common.stages.training_session import RunSetup, train_with_peer
from florist.common.synthetic.membership import Membership
from florist.common.training.devices import enable_determinism
from florist.common.training.half_setup import HalfSetup
from florist.common.training.row_codec import RowCodec
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.training_data import TrainingData, TrainingTable
from florist.common.training.training_journal import TrainingJournal
from florist.common.transport.in_memory import linked_pair
from florist.passive_party.training import make_passive_half

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from florist.active_party.training import ActiveHalf
    from florist.common.audit.view import ActiveView, PassiveView
    from florist.common.core.roles import RoleName
    from florist.common.data.features import Features
    from florist.common.label_aggregate.first_model import Aggregate, FirstModel
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.training import Model, Optimiser
    from florist.common.stages.training_session import Trained
    from florist.common.training.history import History
    from florist.common.training.loop import Half, Run
    from florist.common.training.seen_rows import SeenRows
    from florist.common.transport.channel import Channel, Link

    Rows = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    Predictions = npt.NDArray[np.float32]
    MakeHalf = Callable[[HalfSetup, Channel, Run], Half[Any]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class World:
    """All people: the passive party's features, the labels, and the active party's features."""

    features: Features
    labels: npt.NDArray[np.int64]
    cardinalities: tuple[int, ...]
    own_features: Features | None = None
    own_cardinalities: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Holdings:
    """The rows of the world that each party has."""

    active: Rows
    passive: Rows
    #: UIDs of the union that belong to nobody: dummies of the active party, and of the passive one.
    dummies: int = 0
    passive_dummies: int = 0

    @property
    def shared(self) -> Holdings:
        """The people whom both have, on whom `baseline-partial` trains."""
        both = np.intersect1d(self.active, self.passive)
        return Holdings(both, both)

    def set_size(self, role: RoleName) -> int:
        """Return the size of a party's set in the union: its people and its dummies."""
        if role == "active":
            return len(self.active) + self.dummies
        return len(self.passive) + self.passive_dummies


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Union:
    """The result of the alignment."""

    #: Rank of each row of the world in the union; -1 if it is in neither table.
    rank_of: Rows
    size: int
    #: Part of the seed of the schedule.
    sha256: bytes
    #: The ranks of each party's dummies; None if they are not known or there are none.
    dummies: dict[RoleName, Rows] | None = None

    @classmethod
    def drawn(cls, people: int, holdings: Holdings, seed: int) -> Union:
        """Draw ranks that are independent of the order in the tables, like a private set union."""
        everyone = np.union1d(holdings.active, holdings.passive)
        size = len(everyone) + holdings.dummies + holdings.passive_dummies
        rank_of = np.full(people, -1, dtype=np.int64)
        order = np.random.RandomState(seed).permutation(size)
        rank_of[everyone], rest = order[: len(everyone)], order[len(everyone) :]
        dummies: dict[RoleName, Rows] = {
            "active": np.sort(rest[: holdings.dummies]),
            "passive": np.sort(rest[holdings.dummies :]),
        }
        return cls(rank_of, size, hashlib.sha256(repr(seed).encode()).digest(), dummies)


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The settings of both halves of the model."""

    agreement: TrainingAgreement
    model: Model
    optimiser: Optimiser
    #: The active party's seed is twice this, the passive party's is one more.
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seen:
    """What each party saw of the other, and the truth that it would like to infer.

    Needs `8 · cut_width` bytes of memory per UID and epoch for both views: 1 KB at width 128.
    """

    passive: PassiveView
    active: ActiveView
    #: For each UID of the union, whether its label and its features are real.
    has_label: Flags
    has_features: Flags


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Observed:
    """A finished run as seen by an observer of both parties."""

    active: Trained
    passive: Trained
    #: Predictions for the test people after each epoch; empty without test people.
    predictions: list[Predictions]
    seen: Seen | None
    #: The model from which training started, if there was a label aggregate.
    first_model: FirstModel | None = None


@dataclass(frozen=True, slots=True)
class Wiring:
    """What connects the parties and makes their halves of the model; tests replace parts of it."""

    make_active: Callable[[HalfSetup, Channel, Run], ActiveHalf] = make_active_half
    make_passive: MakeHalf = make_passive_half
    connect: Callable[[], tuple[Link, Link]] = linked_pair


def simulate(
    world: World,
    holdings: Holdings,
    test: World | None,
    settings: SimulationSettings,
    *,
    wiring: Wiring = Wiring(),  # noqa: B008 - frozen
) -> tuple[Trained, Trained]:
    """Train as both parties would after an alignment; return the results of both.

    Raises:
        Exception: whatever the first party to fail raised.
    """
    observed = observe(world, holdings, test, settings, record=False, wiring=wiring)
    return observed.active, observed.passive


def observe(
    world: World,
    holdings: Holdings,
    test: World | None,
    settings: SimulationSettings,
    *,
    record: bool = True,
    union: Union | None = None,
    wiring: Wiring = Wiring(),  # noqa: B008 - frozen
) -> Observed:
    """Train like `simulate`, and return everything that an observer could see.

    Args:
        world: all people.
        holdings: which people each party has.
        test: people to evaluate on after each epoch.
        settings: the settings of both parties.
        record: whether to keep what crosses the link.
        union: the result of an alignment; None draws one from the seed.
        wiring: what connects the parties and makes their halves.

    Raises:
        Exception: whatever the first party to fail raised.
    """
    torch.set_num_threads(1)  # the two parties are threads already
    enable_determinism()
    union = union or Union.drawn(len(world.labels), holdings, settings.seed)
    setups: dict[RoleName, HalfSetup] = {
        "active": _setup(world, holdings, test, settings, union, "active"),
        "passive": _setup(world, holdings, test, settings, union, "passive"),
    }
    links = wiring.connect()
    # Both views can be recorded at one party: what one sends, the other receives.
    rows_seen: list[SeenRows] = []
    aggregates: list[tuple[Aggregate, FirstModel]] = []
    scores = _TestScores(wiring.make_active)
    failures: list[BaseException] = []

    def side(role: RoleName, link: Link, make: MakeHalf, folder: Path) -> Trained:
        run_setup = RunSetup(
            union_sha256=union.sha256,
            store=RunCheckpoints(folder / role, keep=1),
            journal=TrainingJournal(None),
            identity={},
            seed=2 * settings.seed + (role == "passive"),
            on_checkpoint=scores.keep if role == "active" else lambda _: None,
            observe=rows_seen.append if record and role == "active" else None,
            observe_aggregate=lambda *found: aggregates.append(found),
        )
        try:
            return train_with_peer(link, role, make, setups[role], run_setup, NoProgress())
        except BaseException as error:
            failures.append(error)
            link.fail(as_florist_error(error))
            raise

    with tempfile.TemporaryDirectory(prefix="florist-") as folder, ThreadPoolExecutor(2) as both:
        ends = (
            both.submit(side, "active", links[0], scores.make_half, Path(folder)),
            both.submit(side, "passive", links[1], wiring.make_passive, Path(folder)),
        )
    if failures:
        raise failures[0]  # the other party only lost its peer
    active, passive = (end.result() for end in ends)
    for link in links:
        link.close()
    aggregate, first_model = aggregates[0] if aggregates else (None, None)
    seen = _seen(rows_seen, active.run, setups, union, aggregate) if record else None
    return Observed(active, passive, scores.by_epoch, seen, first_model)


class _TestScores:
    """Keeps the active party's predictions for the test people after each epoch."""

    def __init__(self, make: Callable[[HalfSetup, Channel, Run], ActiveHalf]) -> None:
        self.by_epoch: list[Predictions] = []
        self._make = make
        self._half: ActiveHalf

    def make_half(self, setup: HalfSetup, channel: Channel, run: Run) -> ActiveHalf:
        self._half = self._make(setup, channel, run)
        return self._half

    def keep(self, history: History) -> None:
        """Keep the predictions of a new epoch; called after each checkpoint."""
        if self._half.tested is not None and len(history.epochs) > len(self.by_epoch):
            self.by_epoch.append(self._half.tested[1])


def _seen(
    rows_seen: list[SeenRows],
    run: Run,
    setups: dict[RoleName, HalfSetup],
    union: Union,
    aggregate: Aggregate | None,
) -> Seen:
    data = setups["active"].data
    of_active = data.train.membership.row_of_rank
    of_passive = setups["passive"].data.train.membership.row_of_rank
    wire = RowCodec(data.agreement.wire_type, data.agreement.wire_width)
    actives, passives = np.flatnonzero(of_active >= 0), np.flatnonzero(of_passive >= 0)
    assert data.train.labels is not None
    passive = passive_view(
        _drained(rows_seen),
        run.schedule,
        wire,
        passives,
        data.agreement.wide_outputs,
        data.agreement.loss_weights,
    )
    active = as_active(passive, actives, data.train.labels[of_active[actives]])
    dummies = union.dummies or {}
    return Seen(
        replace(
            passive,
            features=_own_features(setups["passive"], of_passive[passives]),
            known_stand_ins=dummies.get("passive"),
            aggregate=aggregate,
        ),
        replace(
            active,
            features=_own_features(setups["active"], of_active[actives]),
            known_stand_ins=dummies.get("active"),
        ),
        has_label=of_active >= 0,
        has_features=of_passive >= 0,
    )


def _own_features(setup: HalfSetup, rows: Rows) -> OwnFeatures | None:
    """Return the features of the attacker's own UIDs, which are these rows of its table."""
    features = setup.data.train.features
    return None if features is None else OwnFeatures(features.take(rows), setup.cardinalities)


def _drained(rows_seen: list[SeenRows]) -> Iterator[SeenRows]:
    """Yield all, and free each one."""
    rows_seen.reverse()
    while rows_seen:
        yield rows_seen.pop()


def _setup(
    world: World,
    holdings: Holdings,
    test: World | None,
    settings: SimulationSettings,
    union: Union,
    role: RoleName,
) -> HalfSetup:
    own, sizes = (
        (holdings.active, (holdings.set_size("active"), holdings.set_size("passive")))
        if role == "active"
        else (holdings.passive, (holdings.set_size("passive"), holdings.set_size("active")))
    )
    train = TrainingTable(
        Membership.of(union.rank_of[own], union.size),
        UnionSizes(*sizes, union.size),
        *_columns(world, own, role),
    )
    test_parts = None
    if test is not None:
        rows = np.arange(len(test.labels))
        test_parts = TrainingTable(
            Membership.of(rows, len(rows)),
            UnionSizes(len(rows), len(rows), len(rows)),
            *_columns(test, rows, role),
        )
    features = world.own_features if role == "active" else world.features
    return HalfSetup(
        TrainingData(settings.agreement, torch.device("cpu"), train, test_parts),
        numeric=features.numeric.shape[1] if features else 0,
        cardinalities=world.own_cardinalities if role == "active" else world.cardinalities,
        model=_model_of(settings, role),
        optimiser=settings.optimiser,
    )


def _model_of(settings: SimulationSettings, role: RoleName) -> Model:
    """Return the model of a party; that of the passive party ends at the agreed cut, if any."""
    cut_width = settings.agreement.cut_width
    if role == "active" or not cut_width:
        return settings.model
    return settings.model.model_copy(update={"hidden": [*settings.model.hidden[:-1], cut_width]})


def _columns(
    world: World, rows: Rows, role: RoleName
) -> tuple[Features | None, npt.NDArray[np.int64] | None]:
    if role == "active":
        own = world.own_features.take(rows) if world.own_features is not None else None
        return own, world.labels[rows]
    return world.features.take(rows), None
