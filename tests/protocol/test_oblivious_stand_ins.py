"""Oblivious stand-ins in whole runs: what is offered, opened, hidden, and made again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from florist.active_party.receiving import BatchOffers, ObliviousReceiving
from florist.active_party.training import make_active_half
from florist.common.core.errors import FloristError, PeerLost, as_florist_error
from florist.common.core.progress import NoProgress
from florist.common.data.features import Features
from florist.common.oblivious_transfer import encrypt_rows, transfers_per_row
from florist.common.session.answer_journal import DifferentBlock
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.stages.training_session import RunSetup, Trained, train_with_peer
from florist.common.synthetic import donor_pool
from florist.common.synthetic.donor_pool import FEWEST, DonorPool, Offers
from florist.common.training import transfers
from florist.common.training.models import BottomModel
from florist.common.training.row_codec import RowCodec
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.shown_labels import shown_labels
from florist.common.training.training_journal import TrainingJournal
from florist.common.training.transfers import TRANSFERS
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import (
    ChoiceBlock,
    GradientBlock,
    OfferBlock,
    TransferBlock,
    TransferReply,
    TransferRequest,
)
from florist.common.transport.recording import Direction, RecordingLink
from florist.experiments import simulation
from florist.experiments.simulation import (
    Holdings,
    SimulationSettings,
    Union,
    Wiring,
    World,
    simulate,
)
from florist.passive_party.offering import StepOffers
from florist.passive_party.training import make_passive_half
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from florist.active_party.training import ActiveHalf
    from florist.common.core.roles import RoleName
    from florist.common.training.feed import Position
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Run
    from florist.common.training.seen_rows import SeenRows
    from florist.common.transport.channel import Channel, Link
    from florist.common.transport.messages import Message
    from florist.passive_party.sending import Parcel
    from florist.passive_party.training import PassiveHalf
    from tests.support.tampering import Tamper

    Rows = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

ROLES: tuple[RoleName, RoleName] = ("active", "passive")
PEOPLE = 600
#: Each party lacks 200 people whom the other has, and 20 UIDs belong to nobody.
HOLDINGS = Holdings(np.arange(400), np.arange(200, PEOPLE), dummies=20)


def make_world(classes: int = 2, seed: int = 0) -> World:
    """Return people whose label depends on their features, more on the first than on others."""
    random = np.random.default_rng(seed)
    numbers = random.random((PEOPLE, 3), dtype=np.float32)
    categories = np.stack([random.integers(0, size, PEOPLE) for size in (4, 25)], 1)
    labels = (numbers[:, 0] * classes + 0.2 * random.standard_normal(PEOPLE)).astype(np.int64)
    return World(
        Features(numbers, categories.astype(np.int32)), labels.clip(0, classes - 1), (4, 25)
    )


def settings(**agreement: object) -> SimulationSettings:
    values = {
        "epochs": 1,
        "batch_size": 100,
        "micro_batch": 50,
        "cut_width": 4,
        "checkpoint_every": 0,
        "embedding_noise": 0.0,
        **agreement,
    }
    return SimulationSettings(
        TrainingAgreement.model_validate(values),
        Model(hidden=[6, 4], tower=[5]),
        Optimiser(learning_rate=1e-2),
        seed=5,
    )


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    tensors, _ = trained.half.state()
    return {name: tensor.clone() for name, tensor in tensors.items()}


def assert_same_result(first: tuple[Trained, Trained], second: tuple[Trained, Trained]) -> None:
    """Check that models, optimisers and figures are bitwise equal."""
    for one, other in zip(first, second, strict=True):
        assert one.run.history.losses == other.run.history.losses
        assert one.run.history.epochs == other.run.history.epochs
        assert one.run.history.rows == other.run.history.rows
        ours, theirs = weights(one), weights(other)
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), name


# --- a recorded run ---


@dataclass
class SentOffers:
    """The offers of a part of a step, before and after encryption."""

    step: int
    part: slice
    own_rows: Rows
    #: Of the rows that the model has computed for the batch, and of the passive party's table.
    computed: torch.Tensor
    of_table: torch.Tensor
    #: (classes, rows, bytes per row)
    plain: Bytes
    encrypted: Bytes


@dataclass
class Recorded:
    """Everything that happens in a run, inside both parties."""

    how: SimulationSettings
    seen: dict[RoleName, list[SeenRows]] = field(
        default_factory=lambda: {"active": [], "passive": []}
    )
    choices: list[BatchOffers] = field(default_factory=list)
    offers: list[SentOffers] = field(default_factory=list)
    #: The number of rows of each use of the bottom model.
    computed: list[int] = field(default_factory=list)
    active: Trained | None = None
    link: RecordingLink | None = None

    def ranks(self, step: int) -> Rows:
        assert self.active is not None
        schedule = self.active.run.schedule
        return schedule.batch(*divmod(step, schedule.steps_per_epoch))


@contextmanager
def recording(found: Recorded) -> Iterator[None]:
    parcel, prepare, forward = StepOffers.parcel, ObliviousReceiving.prepare, BottomModel.forward

    @torch.no_grad()
    def record_parcel(self: StepOffers, part: slice, embeddings: torch.Tensor) -> Parcel:
        made = parcel(self, part, embeddings)
        table = self._donors.gather(np.arange(len(HOLDINGS.passive)))
        rows = part.stop - part.start
        found.offers.append(
            SentOffers(
                self.prepared.position.step,
                part,
                self.prepared.own_rows[part],
                embeddings.clone(),
                forward(self._donors._model, table.numeric, table.categories),
                np.frombuffer(made.plain, np.uint8).reshape(len(self._rows), rows, -1).copy(),
                np.frombuffer(made.message.values, np.uint8).reshape(len(self._rows), rows, -1),
            )
        )
        return made

    def record_prepare(
        self: ObliviousReceiving, position: Position, ranks: Rows, labels: Rows
    ) -> BatchOffers:
        found.choices.append(prepare(self, position, ranks, labels))
        return found.choices[-1]

    def record_forward(
        self: BottomModel, numeric: torch.Tensor, categories: torch.Tensor
    ) -> torch.Tensor:
        found.computed.append(len(numeric))
        return forward(self, numeric, categories)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepOffers, "parcel", record_parcel)
        patch.setattr(ObliviousReceiving, "prepare", record_prepare)
        patch.setattr(BottomModel, "forward", record_forward)
        yield


def record(world: World, how: SimulationSettings, holdings: Holdings = HOLDINGS) -> Recorded:
    found = Recorded(how)

    def active(setup: HalfSetup, channel: Channel, run: Run) -> ActiveHalf:
        return make_active_half(setup, channel, replace(run, observe=found.seen["active"].append))

    def passive(setup: HalfSetup, channel: Channel, run: Run) -> PassiveHalf:
        return make_passive_half(setup, channel, replace(run, observe=found.seen["passive"].append))

    def connect() -> tuple[Link, Link]:
        ours, theirs = linked_pair()
        found.link = RecordingLink(theirs)
        return ours, found.link

    with recording(found):
        wiring = Wiring(make_active=active, make_passive=passive, connect=connect)
        found.active, _ = simulate(world, holdings, None, how, wiring=wiring)
    return found


@pytest.fixture(scope="module", params=[(2, 4), (2, 0), (3, 4)], ids=["2", "2-late-fusion", "3"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """A run in which every row becomes a donor of the label that its gradient shows."""
    classes, cut_width = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(donor_pool, "SHOWN_SHARE", 1.0)
        return record(make_world(classes), settings(classes=classes, cut_width=cut_width))


def label_of_rank(classes: int, how: SimulationSettings) -> Rows:
    """Return the active party's label by rank; -1 where it has none."""
    union = Union.drawn(PEOPLE, HOLDINGS, how.seed)
    labels = np.full(union.size, -1)
    labels[union.rank_of[HOLDINGS.active]] = make_world(classes).labels[HOLDINGS.active]
    return labels


# --- what is opened ---


def test_the_active_party_gets_real_embeddings_or_donors_of_its_label(recorded: Recorded) -> None:
    how = recorded.how
    classes = how.agreement.classes
    labels = label_of_rank(classes, how)
    codec = RowCodec("float32", how.agreement.wire_width)
    shown = np.full(len(labels), -1)  # of the passive party's own UIDs, in earlier steps
    checked = 0
    lacked_in_step = dict.fromkeys(range(7), 0)
    for offers in recorded.offers:
        lacked_in_step[offers.step] += int((offers.own_rows < 0).sum())
    shown_now: list[tuple[Rows, Rows]] = []
    for offers, ours, theirs in zip(
        recorded.offers, recorded.seen["active"], recorded.seen["passive"], strict=True
    ):
        assert (ours.step, ours.start) == (theirs.step, theirs.start)
        assert (ours.step, ours.start) == (offers.step, offers.part.start)
        if ours.start == 0:
            for ranks, found in shown_now:
                shown[ranks] = found
            shown_now = []
        ranks = recorded.ranks(ours.step)[offers.part]
        got = codec.decode(ours.embeddings)
        is_own, has_label = offers.own_rows >= 0, labels[ranks] >= 0
        # Its people, exactly as the model has computed them.
        assert torch.equal(got[is_own], offers.computed[is_own])
        # Everyone whose features these are, as the passive party tells its audit.
        is_somebody = is_own | has_label
        assert theirs.origins is not None
        assert np.array_equal(theirs.origins[is_own], ranks[is_own])
        union = Union.drawn(PEOPLE, HOLDINGS, how.seed)
        row_of = np.full(len(labels), -1)
        row_of[union.rank_of[HOLDINGS.passive]] = np.arange(len(HOLDINGS.passive))
        expected = offers.of_table[row_of[theirs.origins]]
        torch.testing.assert_close(got[is_somebody], expected[is_somebody], rtol=1e-5, atol=1e-6)
        same = codec.decode(theirs.embeddings)
        assert torch.equal(same[is_somebody], got[is_somebody])
        # A donor's gradient has shown the label in an earlier step.
        is_lacked = ~is_own & has_label
        donors = np.bincount(shown[shown >= 0], minlength=classes)
        for label in np.flatnonzero(donors >= FEWEST):
            if donors.sum() >= lacked_in_step[ours.step]:
                of_label = is_lacked & (labels[ranks] == label)
                assert (shown[theirs.origins[of_label]] == label).all()
                checked += int(of_label.sum())
        gradients = codec.decode(ours.gradients)
        shown_now.append((ranks[is_own], shown_labels(gradients, classes)[is_own]))
        # The gradient shows the label, real or synthetic.
        assert np.array_equal(shown_labels(gradients, classes)[has_label], labels[ranks[has_label]])
    assert checked > 80


def test_a_donor_is_not_opened_again_while_others_of_its_class_are_not(recorded: Recorded) -> None:
    """So with few stand-ins hardly any embedding is seen more than twice: real, and as a donor."""
    labels = label_of_rank(recorded.how.agreement.classes, recorded.how)
    times = np.zeros(len(labels), dtype=np.int64)
    for seen in recorded.seen["passive"][6:]:  # from the third step on
        assert seen.origins is not None
        ranks = recorded.ranks(seen.step)[seen.start : seen.start + len(seen.origins)]
        is_stand_in = (seen.origins != ranks) & (labels[ranks] >= 0)
        times += np.bincount(seen.origins[is_stand_in], minlength=len(labels))
    assert times.sum() > 80
    assert times.max() <= 2


def test_the_other_offers_cannot_be_decrypted(recorded: Recorded) -> None:
    """Not with the keys that the active party has: the result is random bytes."""
    right: list[npt.NDArray[np.bool_]] = []
    for offers in recorded.offers:
        batch = recorded.choices[offers.step]
        assert batch.step == offers.step
        chosen, keys = batch.choices[offers.part], batch.keys[offers.part]
        for label, encrypted in enumerate(offers.encrypted):
            decrypted = encrypt_rows(keys, np.ascontiguousarray(encrypted))
            is_chosen = chosen == label
            assert np.array_equal(decrypted[is_chosen], offers.plain[label][is_chosen])
            right.append((decrypted == offers.plain[label])[~is_chosen].reshape(-1))
    found = np.concatenate(right)
    # A random byte is right in one of 256 cases.
    assert abs(found.mean() - 1 / 256) < 6 / 16 / len(found) ** 0.5


def test_offers_of_own_people_are_equal_and_their_ciphertexts_are_not(recorded: Recorded) -> None:
    differ: list[bool] = []
    for offers in recorded.offers:
        is_own = offers.own_rows >= 0
        assert 0 < is_own.sum() < len(is_own)
        first, *others = offers.plain
        for plain in others:
            assert np.array_equal(plain[is_own], first[is_own])
            differ += (plain[~is_own] != first[~is_own]).any(axis=1).tolist()
        sent = offers.encrypted.reshape(-1, offers.encrypted.shape[2])
        assert len(np.unique(sent, axis=0)) == len(sent)
    # Those of stand-ins are of different rows, of which some have the same embedding: zeros.
    assert np.mean(differ) > 0.8


def test_noise_is_the_same_in_all_offers_of_a_person() -> None:
    found = record(make_world(), settings(embedding_noise=0.5))
    codec = RowCodec("float32", 5)
    for offers in found.offers:
        is_own = offers.own_rows >= 0
        assert np.array_equal(offers.plain[0][is_own], offers.plain[1][is_own])
        noise = [
            codec.decode(plain.tobytes()) - offers.of_table[np.maximum(offers.own_rows, 0)]
            for plain in offers.plain
        ]
        assert (noise[0][is_own].abs() > 0).any(dim=1).all()


# --- what is hidden ---


def transfer_messages(found: Recorded) -> list[Any]:
    """Return what the passive party receives on the channel of transfers."""
    assert found.link is not None
    return [
        each.message
        for each in found.link.records
        if each.channel == TRANSFERS and each.direction is Direction.RECEIVED
    ]


def bits_of(block: ChoiceBlock) -> Bytes:
    return np.unpackbits(np.frombuffer(block.values, np.uint8), bitorder="little")


@pytest.mark.parametrize("classes", [2, 3])
def test_transfers_do_not_depend_on_labels(classes: int) -> None:
    """Two runs that differ in labels only: choices differ exactly where the labels do.

    So the choices are the labels' bits, encrypted with a one-time pad that is the same in both
    runs, and which no other message depends on.
    """
    how = settings(classes=classes)
    world = make_world(classes)
    relabelled = replace(world, labels=np.random.default_rng(7).permutation(world.labels))
    first, second = record(world, how), record(relabelled, how)
    width = transfers_per_row(classes)
    pads = []
    for ours, theirs in zip(transfer_messages(first), transfer_messages(second), strict=True):
        if not isinstance(ours, ChoiceBlock):
            assert ours == theirs
            continue
        chosen = [run.choices[ours.step].choices for run in (first, second)]
        bits = [(each[:, None] >> np.arange(width) & 1).reshape(-1) for each in chosen]
        pad, same_pad = (
            bits_of(block)[: len(each)] ^ each
            for block, each in zip((ours, theirs), bits, strict=True)
        )
        assert np.array_equal(pad, same_pad)
        pads.append(pad)
    pad = np.concatenate(pads)
    assert len(pad) == 620 * width
    assert abs(pad.mean() - 0.5) < 6 * 0.5 / len(pad) ** 0.5
    assert not np.array_equal(first.choices[0].choices, second.choices[0].choices)


def test_sizes_of_messages_depend_neither_on_labels_nor_on_who_is_shared() -> None:
    world, found = make_world(), set()
    relabelled = replace(world, labels=1 - world.labels)
    # The same sizes of both sets and of the union, with 50 more shared people.
    others = Holdings(np.r_[0:100, 300:600], np.r_[50:250, 350:550], dummies=20 + 50)
    assert len(others.shared.active) == len(HOLDINGS.shared.active) + 50
    for labels, holdings in ((world, HOLDINGS), (relabelled, HOLDINGS), (world, others)):
        run = record(labels, settings(), holdings)
        assert run.link is not None
        shapes = sorted(
            (each.channel, each.direction.value, type(each.message).__name__, len(values))
            for each in run.link.records
            if (values := getattr(each.message, "values", None)) is not None
        )
        assert len(shapes) == 3 + 7 + 2 * 19
        found.add(tuple(shapes))
    assert len(found) == 1


def test_the_work_does_not_depend_on_how_many_people_are_lacked() -> None:
    """The bottom model computes the same rows for every part of the same size."""
    found = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        everyone = random.permutation(PEOPLE)
        holdings = Holdings(everyone[:400], everyone[200:], dummies=20)
        run = record(make_world(seed=seed), settings(), holdings)
        found.append(run.computed)
        lacked = [int((offers.own_rows < 0).sum()) for offers in run.offers]
        assert len(set(lacked)) > 3
    assert found[0] == found[1] == found[2]
    # For each part its rows, and then as many donors as there is room for.
    parts, donors = found[0][::2], found[0][1::2]
    assert parts == [25, 50, 25] * 6 + [20]
    assert len(set(zip(parts, donors, strict=True))) == 3
    assert all(part * 0.36 < room <= part for part, room in zip(parts, donors, strict=True))


# --- what is learned ---


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("masking", [True, False])
def test_with_everyone_shared_it_is_training_with_plain_stand_ins(
    classes: int, *, masking: bool
) -> None:
    """There are no stand-ins, and all offers are equal."""
    world, everyone = make_world(classes), np.arange(PEOPLE)
    plain, oblivious = (
        simulate(
            world,
            Holdings(everyone, everyone),
            make_world(classes, seed=1),
            settings(
                classes=classes,
                masking=masking,
                stand_ins=stand_ins,
                embedding_noise=0.3,
                epochs=2,
            ),
        )
        for stand_ins in ("plain", "oblivious")
    )
    for one, other in zip(plain, oblivious, strict=True):
        assert one.run.history.losses == other.run.history.losses
        assert one.run.history.epochs == other.run.history.epochs
        ours, theirs = weights(one), weights(other)
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), name
        assert all(name.startswith("sending.") for name in theirs.keys() - ours.keys())


@pytest.mark.parametrize("masking", [True, False])
def test_the_bottom_model_does_not_learn_from_stand_ins(
    monkeypatch: pytest.MonkeyPatch, *, masking: bool
) -> None:
    """In one step: the gradients of own rows do not depend on what is offered for others."""
    how = settings(batch_size=620, micro_batch=620, masking=masking)
    how = replace(how, optimiser=Optimiser(name="sgd", learning_rate=0.1))
    found = []
    for row in (0, 1):

        def offers(_self: DonorPool, ranks: Rows, _step: int, row: int = row) -> Offers:
            rows = np.full((2, len(ranks)), row)
            return Offers(rows, np.full_like(rows, -1))

        monkeypatch.setattr(DonorPool, "offers", offers)
        found.append(simulate(make_world(), HOLDINGS, None, how))
    active, passive = zip(*found, strict=True)
    ours, theirs = (weights(each) for each in passive)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if "model." in name)
    assert active[0].run.history.losses != active[1].run.history.losses


# --- runs that are interrupted ---


class KilledError(BaseException):
    """The party disappears at once."""


@dataclass
class Parties:
    """Two parties with folders of their own, which can start again."""

    folder: Path
    how: SimulationSettings
    #: None: the operating system's randomness.
    seed: int | None = 5
    world: World = field(default_factory=lambda: make_world(3))

    def attempt(
        self, tampers: dict[RoleName, Tamper] | None = None
    ) -> dict[RoleName, Trained | BaseException]:
        """Run both parties, whose outgoing messages pass through functions."""
        torch.set_num_threads(1)
        links: dict[RoleName, Link] = dict(zip(ROLES, linked_pair(grace=0.05), strict=True))
        union = Union.drawn(PEOPLE, HOLDINGS, 5)

        def side(role: RoleName) -> Trained | BaseException:
            setup = simulation._setup(self.world, HOLDINGS, None, self.how, union, role)
            own = self.folder / role
            run_setup = RunSetup(
                union_sha256=union.sha256,
                store=RunCheckpoints(own, keep=3),
                journal=TrainingJournal(own / "answers.journal"),
                identity={},
                seed=None if self.seed is None else 2 * self.seed + (role == "passive"),
            )
            link = links[role]
            if tampers and role in tampers:
                link = TamperingLink(link, tampers[role])
            make: Any = make_active_half if role == "active" else make_passive_half
            try:
                return train_with_peer(link, role, make, setup, run_setup, NoProgress())
            except BaseException as error:  # noqa: BLE001 - it is what the test looks at
                link.fail(as_florist_error(error))
                return error

        with ThreadPoolExecutor(2) as both:
            ends = {role: both.submit(side, role) for role in ROLES}
            return {role: end.result(timeout=60) for role, end in ends.items()}

    def result(self) -> tuple[Trained, Trained]:
        """Run both parties to the end."""
        active, passive = self.attempt().values()
        assert isinstance(active, Trained), active
        assert isinstance(passive, Trained), passive
        return active, passive

    def steps(self, role: RoleName) -> list[int]:
        return RunCheckpoints(self.folder / role, keep=3).steps()


def at(kind: type[Message], number: int, error: type[BaseException]) -> Tamper:
    """Raise an error instead of sending the message with this number of its kind."""
    sent = 0

    def tamper(message: Message) -> list[Message]:
        nonlocal sent
        if isinstance(message, kind):
            sent += 1
            if sent == number + 1:
                raise error("here")
        return [message]

    return tamper


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch needs one or two blocks."""
    monkeypatch.setattr(transfers, "BLOCK_SIZE", 256)


def several(*, sticky: bool) -> SimulationSettings:
    """Three classes, two epochs of seven steps, and a checkpoint after every second one."""
    return settings(classes=3, epochs=2, checkpoint_every=2, embedding_noise=0.3, sticky=sticky)


#: An epoch has 19 parts: three of each step, and one of the last. A block is sent for 128 rows.
MOMENTS: list[tuple[RoleName, type[Message], int]] = [
    ("passive", TransferRequest, 0),
    ("active", TransferReply, 0),
    ("active", TransferBlock, 0),
    ("active", ChoiceBlock, 0),
    ("passive", OfferBlock, 0),
    ("active", GradientBlock, 0),
    ("active", TransferBlock, 3),
    ("active", ChoiceBlock, 5),
    ("passive", OfferBlock, 7),
    ("active", GradientBlock, 7),
    ("passive", OfferBlock, 18),
    ("active", GradientBlock, 19),
    ("active", ChoiceBlock, 13),
]


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    ("error", "sticky"),
    [
        pytest.param(PeerLost, True, id="lost-sticky"),
        pytest.param(KilledError, False, id="killed-re-drawn"),
        pytest.param(PeerLost, False, id="lost-re-drawn", marks=pytest.mark.slow),
        pytest.param(KilledError, True, id="killed-sticky", marks=pytest.mark.slow),
    ],
)
def test_interruptions_at_any_moment_do_not_change_the_result(
    tmp_path: Path, error: type[BaseException], *, sticky: bool
) -> None:
    """Between and within steps, with and without a last checkpoint; each one after the other.

    An interruption before the first checkpoints starts the run over, from the same seeds.
    """
    undisturbed = Parties(tmp_path / "undisturbed", several(sticky=sticky)).result()
    parties = Parties(tmp_path / "interrupted", several(sticky=sticky))
    for role, kind, number in MOMENTS[:6]:
        ends = parties.attempt({role: at(kind, number, error)})
        assert all(isinstance(end, BaseException) for end in ends.values())
        for journal in (tmp_path / "interrupted").glob("*/answers.journal"):
            assert journal.stat().st_size > 0
    assert_same_result(parties.result(), undisturbed)
    for role, kind, number in MOMENTS[6:]:
        again = Parties(tmp_path / f"{kind.__name__}-{number}", several(sticky=sticky))
        ends = again.attempt({role: at(kind, number, error)})
        assert all(isinstance(end, BaseException) for end in ends.values())
        assert all(again.steps(each) for each in ROLES)
        assert_same_result(again.result(), undisturbed)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(("role", "kind", "number"), MOMENTS[:4])
def test_a_crash_before_the_first_checkpoint_starts_over_with_new_secrets(
    tmp_path: Path, role: RoleName, kind: type[Message], number: int
) -> None:
    """The base transfers of the first attempt do not stand in the way of those of the second."""
    parties = Parties(tmp_path, replace(settings(classes=3), seed=9), seed=None)
    ends = parties.attempt({role: at(kind, number, KilledError)})
    assert isinstance(ends[role], KilledError)
    active, passive = parties.result()
    assert len(active.run.history.losses) == 7
    assert active.run.history.epochs == passive.run.history.epochs


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    ("role", "kind", "names"),
    [
        ("active", TransferReply, "the start of the run: the peer sent other base transfers"),
        ("active", TransferBlock, "the transfers: the peer sent other transfers"),
        ("active", ChoiceBlock, "the peer sent other choices"),
        ("active", GradientBlock, "the peer sent other gradients"),
        ("passive", TransferRequest, "the start of the run: the peer sent other base transfers"),
        ("passive", OfferBlock, "the peer sent other embeddings"),
    ],
)
def test_a_peer_that_repeats_a_step_with_other_values_is_refused(
    tmp_path: Path, role: RoleName, kind: type[Message], names: str
) -> None:
    """Step 4 was complete at both parties, but the run resumes before it."""
    parties = Parties(tmp_path, several(sticky=True))
    parties.attempt({"active": at(GradientBlock, 15, KilledError)})
    assert max(parties.steps("active")) == 4

    def flipped(block: Any) -> Message:  # noqa: ANN401
        values = bytearray(block.values)
        values[0] ^= 1
        changed: Message = replace(block, values=bytes(values))
        return changed

    def change(message: Message) -> list[Message]:
        return [flipped(message) if isinstance(message, kind) else message]

    honest: RoleName = "passive" if role == "active" else "active"
    outcome = parties.attempt({role: change})[honest]
    assert isinstance(outcome, FloristError)
    assert isinstance(outcome, DifferentBlock), outcome
    assert names in str(outcome)
