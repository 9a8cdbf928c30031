"""Planted pairs detect an active party that replaces elements in step 8."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.active_party import psu_role as active_role
from florist.common.core.errors import ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu.keys import Keys, OwnSecrets
from florist.common.psu.planted_pairs import PlantedPairs
from florist.common.storage.element_sets import find_rows, sorted_set, union
from florist.common.storage.id_column import IdColumn
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetChunk, Step
from florist.common.transport.recording import RecordingLink
from tests.support.psu import run_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.common.storage.elements import Elements
    from tests.support.psu import Pair

GROUP = make_group("x25519")
SHARED = [f"both-{i}".encode() for i in range(20)]
OURS = [f"active-{i}".encode() for i in range(30)] + SHARED
THEIRS = SHARED + [f"passive-{i}".encode() for i in range(25)]


def random_elements(count: int) -> Elements:
    ids = IdColumn.from_bytes([b"random-%d" % i for i in range(count)])
    return GROUP.power(GROUP.hash_ids(ids), GROUP.random_exponent())


def replacing(choose: Callable[[Elements], np.ndarray]) -> Callable[..., Iterator[Elements]]:
    """Return step 7 of an active party that replaces some elements that are only in its set."""

    def merge(own: Iterable[Elements], peer: Iterable[Elements], _width: int) -> Iterator[Elements]:
        ours, theirs = np.concatenate(list(own)), np.concatenate(list(peer))
        only_own = ours[find_rows(theirs, ours) < 0]
        kept = only_own[~choose(only_own)]
        random = random_elements(len(only_own) - len(kept))
        yield union(sorted_set(np.concatenate([kept, random])), theirs)

    return merge


def cheat(
    monkeypatch: pytest.MonkeyPatch,
    choose: Callable[[Elements], np.ndarray],
    planted: int,
) -> tuple[Pair, RecordingLink]:
    """Run a union with an active party that cheats; the link records what it receives."""
    monkeypatch.setattr(active_role, "union_of", replacing(choose))
    monkeypatch.setattr(active_role, "own_view", lambda *_: pytest.fail("it learned the union"))
    active, passive = linked_pair(grace=0.05)
    recorded = RecordingLink(active)
    return run_pair(GROUP, OURS, THEIRS, (recorded, passive), planted=planted), recorded


def test_replacing_all_is_detected_by_a_single_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The active party learns nothing: the union is not sent back."""
    pair, link = cheat(monkeypatch, lambda rows: np.ones(len(rows), dtype=bool), planted=1)
    assert isinstance(pair.passive, ProtocolViolation)
    assert "planted pairs" in str(pair.passive)
    assert "elements of the union were replaced" in str(pair.passive)
    returned = [
        record
        for record in link.records
        if isinstance(record.message, SetChunk) and record.message.step is Step.SECOND_ROUND_BACK
    ]
    assert returned == []


@pytest.mark.parametrize("replaced", [1, 3, 8])
def test_detection_has_the_stated_probability(replaced: int) -> None:
    """1 - C(N - 2k, R) / C(N, R), with N elements that only the active party seems to have.

    The check itself, without the exchange: the same groups, exponents and counting.
    """
    k, own, runs = 4, 24, 400
    random = np.random.default_rng(replaced)
    first, relation = GROUP.random_exponent(), GROUP.random_exponent()
    pairs = PlantedPairs.of(OwnSecrets.fresh(GROUP), k)
    planted = pairs.make(GROUP, first, relation)
    people = GROUP.power(GROUP.hash_ids(IdColumn.from_bytes(OURS[:own])), first)
    everything = np.concatenate([people, planted])
    missed = 0
    for _ in range(runs):
        kept = np.ones(len(everything), dtype=bool)
        kept[random.choice(len(everything), replaced, replace=False)] = False
        sent = sorted_set(np.concatenate([everything[kept], random_elements(replaced)]))
        raised = sorted_set(GROUP.power(sent, relation))
        intact = int((find_rows(sent, raised) >= 0).sum())
        try:
            pairs.check(intact)
        except ProtocolViolation:
            continue
        missed += 1
    total = own + 2 * k
    expected = comb(total - 2 * k, replaced) / comb(total, replaced)
    deviation = np.sqrt(runs * expected * (1 - expected))
    assert abs(missed - runs * expected) <= 4.5 * deviation + 1


def test_planted_elements_look_like_any_others() -> None:
    """No relation to what the active party knows, and on both sides of the image of the hash."""
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    active, passive = linked_pair()
    recorded = RecordingLink(active)
    run_pair(GROUP, OURS, THEIRS, (recorded, passive), keys, planted=10).views()
    sets = {
        step: np.concatenate(
            [
                np.frombuffer(record.message.elements, np.uint8).reshape(-1, GROUP.width)
                for record in recorded.records
                if isinstance(record.message, SetChunk) and record.message.step is step
            ]
        )
        for step in (Step.ACTIVE_FIRST_ROUND_BACK, Step.ACTIVE_HASHING_BACK, Step.SECOND_ROUND)
    }
    back = sets[Step.ACTIVE_FIRST_ROUND_BACK]
    assert len(back) == len(OURS) + 20
    # What comes back in step 11 has the exponents t1·t2·t3, as the second elements of the pairs.
    s1, s2 = keys[0].first, keys[0].second
    hashed = GROUP.hash_ids(IdColumn.from_bytes(OURS))
    assert not (find_rows(sorted_set(hashed), back) >= 0).any()
    assert not (find_rows(sorted_set(sets[Step.ACTIVE_HASHING_BACK]), back) >= 0).any()
    for exponent in (s1, s2):
        raised = GROUP.power(sets[Step.ACTIVE_HASHING_BACK], exponent)
        assert not (find_rows(sorted_set(raised), back) >= 0).any()


def test_pairs_are_the_same_in_every_attempt_and_differ_between_unions() -> None:
    own = OwnSecrets.fresh(GROUP)
    exponents = GROUP.random_exponent(), GROUP.random_exponent()
    first = PlantedPairs.of(own, 5).make(GROUP, *exponents)
    assert np.array_equal(PlantedPairs.of(own, 5).make(GROUP, *exponents), first)
    other = PlantedPairs.of(OwnSecrets.fresh(GROUP), 5).make(GROUP, *exponents)
    assert not (find_rows(sorted_set(first), other) >= 0).any()
    assert np.array_equal(GROUP.power(first[:5], exponents[1]), first[5:])
    assert own.dummy_key.hex() not in repr(PlantedPairs.of(own, 5))


def test_a_party_that_marks_its_elements_in_step_3_evades_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the documentation says about the limits of planted pairs.

    The active party announces every person twice, as x and x^q. The images of its own people are
    again related by q, and planted elements are not.
    """
    q = GROUP.random_exponent()
    keys = Keys.fresh(GROUP), Keys.fresh(GROUP)
    hashed = GROUP.hash_ids(IdColumn.from_bytes(OURS))
    marked = np.concatenate([hashed, GROUP.power(hashed, q)])

    def unmarked(rows: Elements) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Choose the elements that are related to another one, so not the planted ones."""
        ordered = sorted_set(rows)
        raised = GROUP.power(rows, q)
        is_first = find_rows(ordered, raised) >= 0
        seconds = sorted_set(raised[is_first])
        chosen: np.ndarray[tuple[int], np.dtype[np.bool_]] = is_first | (
            find_rows(seconds, rows) >= 0
        )
        return chosen

    monkeypatch.setattr(active_role, "union_of", replacing(unmarked))
    found: list[bool] = []

    def look(_work: object, universe: object, own_uids: object) -> None:
        everybody = np.concatenate(list(universe.chunks()))  # type: ignore[attr-defined]
        uids = np.concatenate(list(own_uids.chunks()))  # type: ignore[attr-defined]
        found.extend((find_rows(everybody, uids) >= 0).tolist())

    monkeypatch.setattr(active_role, "own_view", look)
    ids = [*OURS, *(b"marked-%d" % i for i in range(len(OURS)))]
    monkeypatch.setattr(type(GROUP), "hash_ids", _hashing(ids, marked))
    pair = run_pair(GROUP, ids, THEIRS, keys=keys, planted=10)
    assert not isinstance(pair.passive, ProtocolViolation)
    # Of the unmarked halves exactly the shared people are found.
    assert found[: len(OURS)] == [each in SHARED for each in OURS]


def _hashing(ids: list[bytes], elements: Elements) -> Callable[..., Elements]:
    """Return a hash that maps these IDs to these elements, and others as usual."""
    usual = type(GROUP).hash_ids
    known = dict(zip(ids, elements, strict=True))

    def hash_ids(self: object, column: IdColumn) -> Elements:
        rows = usual(self, column)  # type: ignore[arg-type]
        listed = list(column)
        if listed and listed[0] == ids[0] and len(listed) == len(ids):
            return np.stack([known[each] for each in listed])
        return rows

    return hash_ids
