"""What `docs/concepts/modified-peer.md` says that a peer with modified software can learn."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from florist.active_party import psu_role as active_role
from florist.common.audit.attack_tools.inferred_labels import inferred_labels
from florist.common.core.errors import ProtocolViolation
from florist.common.data.features import Features
from florist.common.groups import make_group
from florist.common.psu.keys import Keys
from florist.common.psu.union_view import UnionView
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.storage.element_sets import sorted_set, union
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk, Step, UnionDigest
from florist.experiments.simulation import Holdings, SimulationSettings, World, observe
from florist.passive_party import psu_role as passive_role
from tests.support.psu import run_pair
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.common.core.roles import RoleName
    from florist.common.psu.ranks import StoredRanks
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Channel, Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

GROUP = make_group("x25519")
SHARED = [f"both-{i}".encode() for i in range(30)]
OURS = [f"active-{i}".encode() for i in range(40)] + SHARED
THEIRS = SHARED + [f"passive-{i}".encode() for i in range(50)]


def look_up(ids: list[bytes], found: list[bytes]) -> Callable[..., UnionView]:
    """Return a cheater's end of Algorithm 1, which adds its own IDs that are in the union."""

    def look(work: UnionWork, universe: StoredSet, own_uids: StoredSet) -> UnionView:
        everybody = {row.tobytes() for chunk in universe.chunks() for row in chunk}
        uids = [row.tobytes() for chunk in own_uids.chunks() for row in chunk]
        found.extend(each for each, uid in zip(ids, uids, strict=True) if uid in everybody)
        sizes = UnionSizes(len(own_uids), work.peer_size, len(universe))
        return UnionView(cast("StoredRanks", None), universe.facts.sha256, sizes)

    return look


def random_elements(count: int) -> Elements:
    ids = IdColumn.from_bytes([b"random-%d" % i for i in range(count)])
    return GROUP.power(GROUP.hash_ids(ids), GROUP.random_exponent())


def replacing(step: Step, elements: set[bytes]) -> Tamper:
    """Replace these elements by random ones in a set that is sent in one chunk."""

    def tamper(message: Message) -> list[Message]:
        if not isinstance(message, SetChunk) or message.step is not step:
            return [message]
        rows = np.frombuffer(message.elements, np.uint8).reshape(-1, GROUP.width)
        kept = np.array([row.tobytes() not in elements for row in rows])
        changed = np.concatenate([rows[kept], random_elements(int((~kept).sum()))])
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
def test_leaving_a_person_out_in_step_9_tells_the_passive_party_by_the_outcome(
    target: bytes,
    is_shared: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It replaces the UID of one of its people: the active party notices only if it has them."""
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    exponents = [each for side in keys for each in (side.first, side.second, side.third)]
    hashed = GROUP.hash_ids(IdColumn.from_bytes([target]))
    uid = GROUP.power(hashed, GROUP.product(*exponents)).tobytes()
    sent: list[bytes] = []
    replace_uid = replacing(Step.SECOND_ROUND_BACK, {uid})

    def tamper(message: Message) -> list[Message]:
        messages = list(replace_uid(message))
        if isinstance(message, SetChunk) and message.step is Step.SECOND_ROUND_BACK:
            sent.extend(each.elements for each in messages if isinstance(each, SetChunk))
        return messages

    def claim(channel: Channel, universe: StoredSet) -> None:
        channel.send(UnionDigest(len(universe), hashlib.sha256(b"".join(sent)).digest()))
        channel.receive(UnionDigest)

    monkeypatch.setattr(passive_role, "compare_union", claim)
    monkeypatch.setattr(passive_role, "own_view", look_up(THEIRS, []))
    active, passive = linked_pair(grace=0.05)
    outcome = run_pair(GROUP, OURS, THEIRS, (active, TamperingLink(passive, tamper)), keys).active
    assert isinstance(outcome, ProtocolViolation) == is_shared
