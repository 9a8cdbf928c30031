"""Planted pairs detect a party that merges, and changes elements after it has sent its own set.

What such a party wants is to treat the elements that only it has differently from the shared ones:
the union then tells it which of its people are shared. Each way of doing so is shown to work
without planted pairs, and to be detected with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.active_party import psu_role as active_role
from florist.common.core.errors import ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu.keys import Keys
from florist.common.psu.merged import exchanges as merged
from florist.common.psu.planted_pairs import PlantedPairs
from florist.common.psu.uid_hashes import uid_hashes
from florist.common.storage.element_sets import difference, find_rows, sorted_set, union
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk, Step
from florist.common.transport.recording import RecordingLink
from tests.support.psu import run_pair
from tests.support.steps import received_elements
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.storage.elements import Elements
    from florist.common.transport.messages import Message
    from tests.support.psu import Pair

    Change = Callable[[Elements], Elements]

GROUP = make_group("x25519")
SHARED = [f"both-{i}".encode() for i in range(20)]
OURS = [f"active-{i}".encode() for i in range(30)] + SHARED
THEIRS = SHARED + [f"passive-{i}".encode() for i in range(25)]

#: Who merges, by the merged protocol; None is Algorithm 1, in which the active party does.
PROTOCOLS: tuple[RoleName | None, ...] = (None, "active")
by_both_protocols = pytest.mark.parametrize("merging", PROTOCOLS)


def hashed(ids: Iterable[bytes]) -> Elements:
    return GROUP.hash_ids(IdColumn.from_bytes(ids))


def raise_elements() -> Change:
    """Raise elements to an exponent of their own: relations among them survive."""
    exponent = GROUP.random_exponent()
    return lambda elements: GROUP.power(elements, exponent)


def replace_elements(elements: Elements) -> Elements:
    """Replace elements by random ones."""
    random = hashed(b"random-%d" % i for i in range(len(elements)))
    return GROUP.power(random, GROUP.random_exponent())


def change_some(elements: Elements, chosen: npt.NDArray[np.intp], change: Change) -> Elements:
    changed = elements.copy()
    changed[chosen] = change(elements[chosen])
    return changed


@dataclass
class Cheat:
    """What a cheating active party, which merges, changes in its own-only or shared elements."""

    change: Change
    #: How many elements it changes; None for all.
    count: int | None = None
    random: np.random.Generator | None = None

    def __call__(self, elements: Elements) -> Elements:
        every = np.arange(len(elements))
        if self.count is None:
            return change_some(elements, every, self.change)
        assert self.random is not None
        chosen = self.random.choice(every, self.count, replace=False)
        return change_some(elements, chosen, self.change)


def change_own_only(
    monkeypatch: pytest.MonkeyPatch, merging: RoleName | None, cheat: Cheat
) -> None:
    """Change the elements that only the merging party has, before it raises them."""

    def merge(own: Iterable[Elements], peer: Iterable[Elements], _width: int) -> Iterator[Elements]:
        ours, theirs = np.concatenate(list(own)), np.concatenate(list(peer))
        yield union(sorted_set(cheat(difference(ours, theirs))), theirs)

    def subtract(
        own: Iterable[Elements], peer: Iterable[Elements], _width: int
    ) -> Iterator[Elements]:
        ours, theirs = np.concatenate(list(own)), np.concatenate(list(peer))
        yield sorted_set(cheat(difference(ours, theirs)))

    if merging is None:
        monkeypatch.setattr(active_role, "union_of", merge)
    else:
        monkeypatch.setattr(merged, "difference_of", subtract)


def run(merging: RoleName | None, planted: int, keys: tuple[Keys, Keys]) -> tuple[Pair, Recorded]:
    active, passive = linked_pair(grace=0.05)
    link = RecordingLink(active)
    pair = run_pair(GROUP, OURS, THEIRS, (link, passive), keys, planted=planted, merging=merging)
    return pair, Recorded(link)


@dataclass(frozen=True)
class Recorded:
    """What the active party received."""

    link: RecordingLink

    def received(self, step: Step, width: int = GROUP.width) -> Elements:
        return received_elements(self.link, step, width)

    def union(self, merging: RoleName | None) -> Elements:
        if merging is None:
            return self.received(Step.SECOND_ROUND_BACK)
        return self.received(Step.UNION, 16)

    def own_people(self, merging: RoleName | None, keys: Keys) -> Elements:
        """Return the UIDs of the active party's people, in order."""
        if merging is None:
            returned = self.received(Step.ACTIVE_HASHING_BACK)
            return GROUP.power(returned, GROUP.product(keys.first, keys.third))
        return GROUP.power(self.received(Step.MERGING_SET_BACK), keys.second)


def uids(merging: RoleName | None, elements: Elements) -> Elements:
    return elements if merging is None else uid_hashes(elements)


@by_both_protocols
@pytest.mark.parametrize("how", ["raised", "replaced"])
def test_without_pairs_changed_elements_show_who_is_shared(
    monkeypatch: pytest.MonkeyPatch, merging: RoleName | None, how: str
) -> None:
    """The merging party finds exactly its shared people in the union; the other sees nothing."""
    change = raise_elements() if how == "raised" else replace_elements
    change_own_only(monkeypatch, merging, Cheat(change))
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    pair, recorded = run(merging, 0, keys)
    people = uids(merging, recorded.own_people(merging, keys[0]))
    found = find_rows(recorded.union(merging), people) >= 0
    assert found.tolist() == [each in SHARED for each in OURS]
    assert not isinstance(pair.passive, ProtocolViolation)


@by_both_protocols
@pytest.mark.parametrize("how", ["raised", "replaced"])
def test_changing_all_own_elements_is_detected_by_a_single_pair(
    monkeypatch: pytest.MonkeyPatch, merging: RoleName | None, how: str
) -> None:
    """The merging party learns nothing: the union is not sent."""
    change = raise_elements() if how == "raised" else replace_elements
    change_own_only(monkeypatch, merging, Cheat(change))
    pair, recorded = run(merging, 1, (Keys.fresh(GROUP), Keys.fresh(GROUP)))
    assert isinstance(pair.passive, ProtocolViolation)
    assert "planted pairs" in str(pair.passive)
    assert len(recorded.union(merging)) == 0


def shared_powers(keys: tuple[Keys, Keys], ids: Elements) -> set[bytes]:
    """Return these IDs as they are in w, of the merged protocol: H(y)^{abc}."""
    exponent = GROUP.product(keys[0].first, keys[0].second, keys[1].first)
    return {row.tobytes() for row in GROUP.power(ids, exponent)}


def changing_w(elements: set[bytes], change: Change) -> Callable[[Message], list[Message]]:
    """Change some elements of w, which is sent in one chunk."""

    def tamper(message: Message) -> list[Message]:
        if not isinstance(message, SetChunk) or message.step is not Step.COMPLETING_SET_BACK:
            return [message]
        rows = np.frombuffer(message.elements, np.uint8).reshape(-1, GROUP.width)
        chosen = np.flatnonzero([row.tobytes() in elements for row in rows])
        return [replace(message, elements=change_some(rows, chosen, change).tobytes())]

    return tamper


@pytest.mark.parametrize("how", ["raised", "replaced"])
@pytest.mark.parametrize("planted", [0, 1])
def test_changing_the_shared_elements_is_detected_as_well(how: str, planted: int) -> None:
    """In the merged protocol, the completing party has its UIDs from nobody else.

    A merging party that waits for e before it answers u' knows which elements are shared; to it
    the anchors are among them. The test knows them by all keys.
    """
    token = b"t" * 32
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    pairs = PlantedPairs(planted, token)
    blinded = GROUP.power(pairs.anchors(GROUP), keys[1].planting)
    looks_shared = np.concatenate([hashed(SHARED), blinded])
    change = raise_elements() if how == "raised" else replace_elements
    tamper = changing_w(shared_powers(keys, looks_shared), change)
    active, passive = linked_pair(grace=0.05)
    recorded = RecordingLink(active)
    pair = run_pair(
        GROUP,
        OURS,
        THEIRS,
        (TamperingLink(recorded, tamper), passive),
        keys,
        planted=pairs,
        merging="active",
    )
    if planted:
        assert isinstance(pair.passive, ProtocolViolation)
        assert "planted pairs" in str(pair.passive)
        return
    seen = Recorded(recorded)
    people = uid_hashes(seen.own_people("active", keys[0]))
    found = find_rows(seen.union("active"), people) >= 0
    assert found.tolist() == [each not in SHARED for each in OURS]


@by_both_protocols
@pytest.mark.parametrize("changed", [1, 4])
def test_detection_has_the_stated_probability(
    monkeypatch: pytest.MonkeyPatch, merging: RoleName | None, changed: int
) -> None:
    """1 - C(N - k, R) / C(N, R), with N elements that only the merging party seems to have."""
    planted, runs = 6, 60
    random = np.random.default_rng(changed)
    change_own_only(monkeypatch, merging, Cheat(raise_elements(), changed, random))
    missed = 0
    for _ in range(runs):
        pair, _ = run(merging, planted, (Keys.fresh(GROUP), Keys.fresh(GROUP)))
        missed += not isinstance(pair.passive, ProtocolViolation)
    total = len(OURS) - len(SHARED) + planted
    expected = comb(total - planted, changed) / comb(total, changed)
    deviation = np.sqrt(runs * expected * (1 - expected))
    assert abs(missed - runs * expected) <= 4.5 * deviation + 1


@by_both_protocols
def test_planted_elements_look_like_any_others(merging: RoleName | None) -> None:
    """No relation to what the merging party knows: anchors, and its own exponents."""
    pairs = PlantedPairs(10, b"t" * 32)
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    active, passive = linked_pair()
    link = RecordingLink(active)
    run_pair(GROUP, OURS, THEIRS, (link, passive), keys, planted=pairs, merging=merging).views()
    recorded = Recorded(link)
    returned, sent, by_name = (
        (Step.ACTIVE_FIRST_ROUND_BACK, Step.PASSIVE_FIRST_ROUND, Step.ACTIVE_HASHING_BACK)
        if merging is None
        else (Step.MERGE, Step.COMPLETING_SET, Step.MERGING_SET_BACK)
    )
    back, peers = recorded.received(returned), recorded.received(sent)
    assert len(back) == len(OURS) + (10 if merging is None else 20)
    assert len(peers) == len(THEIRS) + 10
    own = keys[0]
    known = np.concatenate([pairs.anchors(GROUP), hashed(OURS), recorded.received(by_name)])
    exponents = [own.first, own.second, own.third, GROUP.product(own.first, own.second)]
    for every in (known, *(GROUP.power(known, each) for each in exponents)):
        for elements in (back, peers):
            assert not (find_rows(sorted_set(every), elements) >= 0).any()


@by_both_protocols
def test_anchors_in_place_of_own_elements_do_not_show_planted_ones(
    merging: RoleName | None,
) -> None:
    """A merging party may have anything raised by name (u, or step 11), and so the anchors too.

    The other party blinds the anchors that it uses with an exponent of their own.
    """
    out, back, returned = (
        (Step.ACTIVE_HASHING, Step.ACTIVE_HASHING_BACK, Step.ACTIVE_FIRST_ROUND_BACK)
        if merging is None
        else (Step.MERGING_SET, Step.MERGING_SET_BACK, Step.MERGE)
    )
    pairs, keys = PlantedPairs(5, b"t" * 32), (Keys.fresh(GROUP), Keys.fresh(GROUP))
    anchors = GROUP.power(pairs.anchors(GROUP), keys[0].first)

    def tamper(message: Message) -> list[Message]:
        if not isinstance(message, SetChunk) or message.step is not out:
            return [message]
        rows = np.frombuffer(message.elements, np.uint8).reshape(-1, GROUP.width).copy()
        rows[:5] = anchors
        return [replace(message, elements=rows.tobytes())]

    active, passive = linked_pair(grace=0.05)
    link = RecordingLink(active)
    links = TamperingLink(link, tamper), passive
    run_pair(GROUP, OURS, THEIRS, links, keys, planted=pairs, merging=merging)
    recorded = Recorded(link)
    by_name = recorded.received(back)[:5]
    assert len(by_name) == 5
    assert not (find_rows(recorded.received(returned), by_name) >= 0).any()


def test_anchors_are_the_same_in_every_attempt_and_differ_between_unions() -> None:
    first = PlantedPairs(5, b"t" * 32).anchors(GROUP)
    assert np.array_equal(PlantedPairs(5, b"t" * 32).anchors(GROUP), first)
    other = PlantedPairs(5, b"u" * 32).anchors(GROUP)
    assert not (find_rows(sorted_set(first), other) >= 0).any()
    assert len(np.unique(first, axis=0)) == 5
