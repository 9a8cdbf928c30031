"""What `docs/concepts/modified-peer.md` says that a peer with modified software can learn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from florist.active_party import psu_role as active_role
from florist.active_party.receiving import ObliviousReceiving
from florist.common.audit.attack_tools.inferred_labels import inferred_labels
from florist.common.audit.attacks import ACTIVE_ATTACKS
from florist.common.audit.statistics import evaluate
from florist.common.core.errors import ProtocolViolation
from florist.common.data.features import Features
from florist.common.groups import make_group
from florist.common.groups.curve25519 import ORDER
from florist.common.groups.group import Exponent
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.keys import Keys
from florist.common.psu.merged import completing_party, merging_party
from florist.common.psu.merged import exchanges as merged_exchanges
from florist.common.psu.uid_hashes import UID_BYTES, uid_hashes
from florist.common.psu.union_view import UnionView
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.storage.element_sets import difference, find_rows, sorted_set, union
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk, Step, UnionDigest
from florist.common.transport.recording import Direction, RecordingLink
from florist.experiments.simulation import Holdings, SimulationSettings, World, observe
from florist.passive_party import psu_role as passive_role
from tests.support.psu import run_pair
from tests.support.simulated_windows import run
from tests.support.steps import received_elements
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.active_party.receiving import BatchOffers
    from florist.common.audit.view import Ranks
    from florist.common.core.roles import RoleName
    from florist.common.psu.executor import Executor
    from florist.common.psu.ranks import StoredRanks
    from florist.common.psu.stored_sets import SetFacts, StoredSet
    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements
    from florist.common.training.feed import Position
    from florist.common.transport.channel import Channel, Link
    from florist.common.transport.messages import Message
    from tests.support.psu import Pair
    from tests.support.tampering import Tamper

GROUP = make_group("x25519")
SHARED = [f"both-{i}".encode() for i in range(30)]
OURS = [f"active-{i}".encode() for i in range(40)] + SHARED
THEIRS = SHARED + [f"passive-{i}".encode() for i in range(50)]


def look_up(ids: list[bytes], found: list[bytes]) -> Callable[..., UnionView]:
    """Return a cheater's end of Algorithm 1, which adds its own IDs that are in the union."""

    def look(work: UnionWork, universe: StoredSet, own_uids: Iterable[Elements]) -> UnionView:
        everybody = {row.tobytes() for chunk in universe.chunks() for row in chunk}
        uids = [row[: GROUP.width].tobytes() for chunk in own_uids for row in chunk]
        found.extend(each for each, uid in zip(ids, uids, strict=True) if uid in everybody)
        sizes = UnionSizes(len(uids), work.peer_size, len(universe))
        return UnionView(cast("StoredRanks", None), universe.facts.sha256, sizes)

    return look


def random_elements(count: int) -> Elements:
    ids = IdColumn.from_bytes([b"random-%d" % i for i in range(count)])
    return GROUP.power(GROUP.hash_ids(ids), GROUP.random_exponent())


def replacing(step: Step, elements: set[bytes], width: int = GROUP.width) -> Tamper:
    """Replace these elements by random ones in a set that is sent in one chunk, sorted."""

    def tamper(message: Message) -> list[Message]:
        if not isinstance(message, SetChunk) or message.step is not step:
            return [message]
        rows = np.frombuffer(message.elements, np.uint8).reshape(-1, width)
        kept = np.array([row.tobytes() not in elements for row in rows])
        random = random_elements(int((~kept).sum()))[:, :width]
        changed = np.concatenate([rows[kept], random])
        return [replace(message, elements=sorted_set(changed).tobytes())]

    return tamper


@pytest.mark.parametrize("role", ["active", "passive"])
def test_random_elements_in_the_first_round_show_either_party_who_is_shared(
    role: RoleName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party sends random elements for half of its people (step 3 or 5), but maps all of them."""
    ids, module, step = (
        (OURS, active_role, Step.ACTIVE_FIRST_ROUND)
        if role == "active"
        else (THEIRS, passive_role, Step.PASSIVE_FIRST_ROUND)
    )
    half = set(ids[::2])
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    exponent = keys[role == "passive"].first
    hashed = GROUP.power(GROUP.hash_ids(IdColumn.from_bytes(sorted(half))), exponent)
    links: list[Link] = list(linked_pair())
    tamper = replacing(step, {row.tobytes() for row in hashed})
    links[role == "passive"] = TamperingLink(links[role == "passive"], tamper)
    found: list[bytes] = []
    monkeypatch.setattr(module, "own_view", look_up(ids, found))
    views = run_pair(GROUP, OURS, THEIRS, (links[0], links[1]), keys).views()
    assert half.intersection(found) == half.intersection(SHARED)
    # The other party sees an ordinary run with a smaller intersection.
    honest = views[role == "active"]
    assert honest.sizes.shared_estimate == len(set(SHARED) - half) > 0
    assert len(honest.rank_of_own) == honest.sizes.own


@dataclass(frozen=True)
class Marking(LocalExecutor):
    """Hashes a party's IDs, and raises some of them to an exponent that only this party knows."""

    mark: Exponent
    marked: frozenset[bytes]

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        for batch in batches:
            elements = self.group.hash_ids(batch).copy()
            chosen = np.flatnonzero([each in self.marked for each in batch])
            elements[chosen] = self.group.power(elements[chosen], self.mark)
            yield elements


@dataclass(frozen=True)
class Replacing(LocalExecutor):
    """Hashes a party's IDs, except that some of them get random elements."""

    replaced: frozenset[bytes]

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        for batch in batches:
            elements = self.group.hash_ids(batch).copy()
            chosen = np.flatnonzero([each in self.replaced for each in batch])
            elements[chosen] = random_elements(len(chosen))
            yield elements


def inverse(exponent: Exponent) -> Exponent:
    return Exponent(pow(int(exponent), -1, ORDER))


def received(link: RecordingLink, step: Step, width: int = GROUP.width) -> Elements:
    return received_elements(link, step, width)


def run_with_marks(keys: tuple[Keys, Keys], mark: Exponent, merging: RoleName | None) -> Marked:
    """Run a union with an active party that marks all its people from its first message on."""
    active, passive = linked_pair(grace=0.05)
    link = RecordingLink(active)
    executors = Marking(GROUP, mark, frozenset(OURS)), LocalExecutor(GROUP)
    links = link, passive
    pair = run_pair(
        GROUP, OURS, THEIRS, links, keys, executors=executors, planted=8, merging=merging
    )
    own = keys[0]
    if merging is None:
        exponent = GROUP.product(own.first, own.third, inverse(mark))
        unmarked = GROUP.power(received(link, Step.ACTIVE_HASHING_BACK), exponent)
        everybody = received(link, Step.SECOND_ROUND_BACK)
    else:
        exponent = GROUP.product(own.second, inverse(mark))
        unmarked = uid_hashes(GROUP.power(received(link, Step.MERGING_SET_BACK), exponent))
        everybody = received(link, Step.UNION, UID_BYTES)
    found = find_rows(everybody, unmarked) >= 0
    return Marked({each for each, is_found in zip(OURS, found, strict=True) if is_found}, pair)


@dataclass(frozen=True)
class Marked:
    #: The people of the cheating party whose unmarked UIDs it has found in the union.
    found: set[bytes]
    pair: Pair


def test_marked_elements_show_the_active_party_who_is_shared_but_not_unnoticed() -> None:
    """Algorithm 1: the passive party counts the union itself, and sees no intersection."""
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    marked = run_with_marks(keys, GROUP.random_exponent(), None)
    assert marked.found == set(SHARED)
    assert isinstance(marked.pair.passive, UnionView)
    assert marked.pair.passive.sizes.shared_estimate == 0


def test_marked_elements_show_the_merging_party_who_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The merged protocol: it undoes the marks when it compares the sets, and nobody notices.

    All sizes are as usual, and planted pairs are intact. But in the union, its own people look
    different if they are shared.
    """
    mark = GROUP.random_exponent()

    def subtract(
        own: Iterable[Elements], peer: Iterable[Elements], _width: int
    ) -> Iterator[Elements]:
        ours, theirs = np.concatenate(list(own)), np.concatenate(list(peer))
        marked = sorted_set(GROUP.power(theirs, mark))
        yield difference(difference(ours, theirs), marked)

    monkeypatch.setattr(merged_exchanges, "difference_of", subtract)
    # It does not miss its shared people in the union, which are not marked there.
    monkeypatch.setattr(merging_party, "own_view", look_up(OURS, []))
    marked = run_with_marks((Keys.fresh(GROUP), Keys.fresh(GROUP)), mark, "active")
    assert marked.found == set(SHARED)
    assert isinstance(marked.pair.passive, UnionView)
    assert marked.pair.passive.sizes.shared_estimate == len(SHARED)


def test_marked_elements_show_the_completing_party_who_is_shared() -> None:
    """It marks half of its people from the first message on, in the merged protocol.

    Marked ones match nothing, so what is shared of them returns in the remainder, without the mark.
    The merging party sees an ordinary run with a smaller intersection.
    """
    mark, keys = GROUP.random_exponent(), (Keys.fresh(GROUP), Keys.fresh(GROUP))
    half = frozenset(THEIRS[::2])
    active, passive = linked_pair()
    link = RecordingLink(passive)
    executors = LocalExecutor(GROUP), Marking(GROUP, mark, half)
    views = run_pair(
        GROUP, OURS, THEIRS, (active, link), keys, executors=executors, planted=8, merging="active"
    ).views()
    # w is in the order of u', which it has sorted itself.
    own = next(iter(executors[1].hashed([IdColumn.from_bytes(THEIRS)])))
    sent = GROUP.power(own, keys[1].first)
    w = received(link, Step.COMPLETING_SET_BACK)
    order = [
        record.message.elements
        for record in link.records
        if record.direction is Direction.SENT
        and isinstance(record.message, SetChunk)
        and record.message.step is Step.COMPLETING_SET
    ]
    ordered = np.frombuffer(b"".join(order), np.uint8).reshape(-1, GROUP.width)
    own_w = w[find_rows(ordered, sent)]
    remainder = received(link, Step.REMAINDER)
    found = find_rows(remainder, GROUP.power(own_w, inverse(mark))) >= 0
    learned = {each for each, is_found in zip(THEIRS, found, strict=True) if is_found}
    assert learned == half.intersection(SHARED)
    assert views[0].sizes.shared_estimate == len(set(SHARED) - half) > 0


@pytest.mark.parametrize("role", ["active", "passive"])
def test_random_elements_in_the_merged_protocol_tell_nothing(role: RoleName) -> None:
    """Each set is sent once: a person whose element is random cannot be found in the union."""
    ids = OURS if role == "active" else THEIRS
    half = frozenset(ids[::2])
    executors: list[Executor] = [LocalExecutor(GROUP), LocalExecutor(GROUP)]
    executors[role == "passive"] = Replacing(GROUP, half)
    views = run_pair(
        GROUP,
        OURS,
        THEIRS,
        executors=(executors[0], executors[1]),
        planted=4,
        merging="active",
    ).views()
    # Every one of its people has a UID, shared or not.
    assert len(set(views[role == "passive"].rank_of_own.tolist())) == len(ids)
    honest = views[role == "active"]
    assert honest.sizes.shared_estimate == len(set(SHARED) - half) > 0


def test_random_elements_in_step_9_are_detected() -> None:
    """The active party misses some of its own people in the union."""

    def tamper(message: Message) -> list[Message]:
        if not isinstance(message, SetChunk) or message.step is not Step.SECOND_ROUND_BACK:
            return [message]
        rows = np.frombuffer(message.elements, np.uint8).reshape(-1, GROUP.width)
        changed = sorted_set(np.concatenate([rows[60:], random_elements(60)]))
        return [replace(message, elements=changed.tobytes())]

    active, passive = linked_pair(grace=0.05)
    outcome = run_pair(GROUP, OURS, THEIRS, (active, TamperingLink(passive, tamper))).active
    assert isinstance(outcome, ProtocolViolation)


def test_random_elements_in_step_8_show_the_active_party_who_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The active party replaces the elements that only it has; the passive party cannot tell."""

    def replaced(
        own: Iterable[Elements], peer: Iterable[Elements], _width: int
    ) -> Iterator[Elements]:
        theirs = np.concatenate(list(peer))
        only_own = len(union(np.concatenate(list(own)), theirs)) - len(theirs)
        yield sorted_set(np.concatenate([theirs, random_elements(only_own)]))

    found: list[bytes] = []
    monkeypatch.setattr(active_role, "own_view", look_up(OURS, found))
    monkeypatch.setattr(active_role, "union_of", replaced)
    _, passive = run_pair(GROUP, OURS, THEIRS).views()
    assert found == SHARED
    # To the passive party, this was a run like any other.
    assert passive.sizes.shared_estimate == len(SHARED)
    assert len(set(passive.rank_of_own.tolist())) == len(THEIRS)


def test_a_guessed_id_shows_in_the_sizes() -> None:
    """A set of one guess: the size of the intersection is the answer."""
    for guess, is_theirs in ((SHARED[0], 1), (b"nobody", 0)):
        active, passive = run_pair(GROUP, [guess], THEIRS).views()
        assert active.sizes.shared_estimate == is_theirs
        assert (
            passive.sizes.shared_estimate == is_theirs
        )  # and nothing tells it that this was a probe


def test_the_passive_party_reads_the_labels_off_the_gradients() -> None:
    """Even an honest one: real and synthetic labels, without error, but not which are real."""
    people, random = 2000, np.random.default_rng(3)
    numbers = random.random((people, 3), dtype=np.float32)
    labels = (random.random(people) < np.where(numbers[:, 0] > 0.5, 0.4, 0.1)).astype(np.int64)
    world = World(Features(numbers, np.zeros((people, 0), np.int32)), labels, ())
    holdings = Holdings(active=np.arange(1400), passive=np.arange(600, people))
    settings = SimulationSettings(
        TrainingAgreement(epochs=1, batch_size=200, micro_batch=200, cut_width=64),
        Model(hidden=[64, 64], tower=[64, 64]),
        Optimiser(learning_rate=1e-3),
    )
    seen = observe(world, holdings, None, settings).seen
    assert seen is not None
    read, used = [], []
    for step, (ranks, inferred) in zip(
        seen.active.steps, inferred_labels(seen.passive), strict=True
    ):
        assert np.array_equal(step.ranks, ranks)
        real = seen.has_label[ranks]
        read.append(inferred[real])
        used.append(step.labels[real] == 1)
    agreement = float(np.mean(np.concatenate(read) == np.concatenate(used)))
    assert agreement > 0.99


@pytest.mark.parametrize(("target", "is_shared"), [(THEIRS[-1], False), (SHARED[3], True)])
@pytest.mark.parametrize("merging", [None, "active"])
def test_leaving_a_person_out_of_the_union_tells_the_passive_party_by_the_outcome(
    merging: RoleName | None,
    target: bytes,
    is_shared: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It replaces the UID of one of its people: the active party notices only if it has them."""
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    used = ("first", "second", "third") if merging is None else ("first", "second")
    exponents = [getattr(side, name) for side in keys for name in used]
    step = Step.SECOND_ROUND_BACK if merging is None else Step.UNION
    uid = GROUP.power(GROUP.hash_ids(IdColumn.from_bytes([target])), GROUP.product(*exponents))
    uid = uid if merging is None else uid_hashes(uid)
    sent: list[bytes] = []
    replace_uid = replacing(step, {uid.tobytes()}, uid.shape[1])

    def tamper(message: Message) -> list[Message]:
        messages = list(replace_uid(message))
        if isinstance(message, SetChunk) and message.step is step:
            sent.extend(each.elements for each in messages if isinstance(each, SetChunk))
        return messages

    def claim(channel: Channel, universe: SetFacts) -> None:
        channel.send(UnionDigest(universe.count, hashlib.sha256(b"".join(sent)).digest()))
        channel.receive(UnionDigest)

    monkeypatch.setattr(passive_role, "compare_union", claim)
    monkeypatch.setattr(completing_party, "compare_union", claim)
    monkeypatch.setattr(passive_role, "own_view", look_up(THEIRS, []))
    active, passive = linked_pair(grace=0.05)
    links = (active, TamperingLink(passive, tamper))
    outcome = run_pair(GROUP, OURS, THEIRS, links, keys, merging=merging).active
    assert isinstance(outcome, ProtocolViolation) == is_shared


# --- training: another offer than that of the label ---


def test_the_offer_of_another_class_tells_stand_ins_from_real_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stand-ins then fit the wrong label, and real features still fit the right one."""

    def found() -> float:
        seen = run(0.3, 256, steps=21).seen
        assert seen is not None
        scores = ACTIVE_ATTACKS["label-likelihood"].score(seen.active)
        truth = seen.has_features[seen.active.uids]
        return evaluate("any", scores, truth, samples=20).folded_auc.value

    honest = found()
    choose = ObliviousReceiving.prepare

    def choose_the_other(
        self: ObliviousReceiving, position: Position, ranks: Ranks, labels: Ranks
    ) -> BatchOffers:
        return choose(self, position, ranks, np.where(labels >= 0, 1 - labels, labels))

    monkeypatch.setattr(ObliviousReceiving, "prepare", choose_the_other)
    assert honest < 0.55
    assert found() > 0.6
