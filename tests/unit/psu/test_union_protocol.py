"""The protocols of a union: who merges, and what they cost, by hand and against counted runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.groups import make_group
from florist.common.psu.exchange_pool import MAX_EXCHANGES
from florist.common.psu.union_protocol import (
    EXCHANGES,
    Sizes,
    exponentiations,
    merging_party,
    own_exponentiations,
    traffic,
)
from florist.common.transport.messages import SetChunk, Step
from florist.common.transport.recording import RecordingLink
from tests.support.ideal_union import is_ideal
from tests.support.memory_storage import MemoryStorage
from tests.support.unions import CountingGroup, Side, attempt_both

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.settings.union import ProtocolName
    from florist.common.transport.channel import Link

GROUP = make_group("x25519")
sizes = st.integers(0, 1000)
ROLES: tuple[RoleName, RoleName] = ("active", "passive")


@pytest.mark.parametrize(
    ("active", "passive", "expected"),
    [
        (3, 5, "active"),
        (5, 3, "passive"),
        (4, 4, "active"),
        (0, 0, "active"),
        (0, 1, "active"),
        (1, 0, "passive"),
        (10**9, 10**9 - 1, "passive"),
    ],
)
def test_the_smaller_set_merges(active: int, passive: int, expected: RoleName) -> None:
    assert merging_party("merged", Sizes(active, passive)) == expected
    assert merging_party("algorithm-1", Sizes(active, passive)) is None


@given(sizes, sizes)
def test_both_parties_agree_on_who_merges(active: int, passive: int) -> None:
    ours, theirs = Sizes.of("active", active, passive), Sizes.of("passive", passive, active)
    assert ours == theirs == Sizes(active, passive)
    assert merging_party("merged", ours) == merging_party("merged", theirs)


@given(sizes, sizes, st.data())
def test_the_party_that_merges_saves_work_whatever_is_shared(
    active: int, passive: int, data: st.DataObject
) -> None:
    both = Sizes(active, passive)
    shared = data.draw(st.integers(0, min(active, passive)))
    costs = {role: exponentiations(role, both, shared) for role in ROLES}
    merging = merging_party("merged", both)
    assert merging is not None
    assert costs[merging] == min(costs.values())
    assert costs[merging] <= exponentiations(None, both, shared)


@pytest.mark.parametrize(
    ("merging", "shared", "expected"),
    [
        # 5 (a + p) + 2 |U|, with |U| = 100, 70 and 60.
        (None, 0, 5 * 100 + 2 * 100),
        (None, 30, 5 * 100 + 2 * 70),
        (None, 40, 5 * 100 + 2 * 60),
        # 6a + 4p - 2i.
        ("active", 0, 6 * 40 + 4 * 60),
        ("active", 30, 6 * 40 + 4 * 60 - 2 * 30),
        ("active", 40, 6 * 40 + 4 * 60 - 2 * 40),
        # 4a + 6p - 2i.
        ("passive", 0, 4 * 40 + 6 * 60),
        ("passive", 30, 4 * 40 + 6 * 60 - 2 * 30),
        ("passive", 40, 4 * 40 + 6 * 60 - 2 * 40),
    ],
)
def test_exponentiations_by_hand(merging: RoleName | None, shared: int, expected: int) -> None:
    assert exponentiations(merging, Sizes(40, 60), shared) == expected


@pytest.mark.parametrize(
    ("merging", "expected"),
    [
        # Steps 3-6 and 11-12 send each set four times, steps 8-9 the union twice.
        (None, 32 * (4 * 100 + 2 * 70)),
        # u, v and e have 40 elements, u' and w 60, the remainder 10, and the union 70 hashes.
        ("active", 32 * (3 * 40 + 2 * 60 + 10) + 16 * 70),
        # u, v and e have 60 elements, u' and w 40, the remainder 30, and the union 70 hashes.
        ("passive", 32 * (3 * 60 + 2 * 40 + 30) + 16 * 70),
    ],
)
def test_traffic_by_hand(merging: RoleName | None, expected: int) -> None:
    assert traffic(merging, Sizes(40, 60), 30, 32) == expected


def test_with_half_shared_an_id_costs_what_is_documented() -> None:
    """6.5 exponentiations and 176 bytes by Algorithm 1; 4.5 and 100 by the merged protocol."""
    both = Sizes(1000, 1000)
    assert exponentiations(None, both, 500) == 6.5 * 2000
    assert exponentiations("active", both, 500) == 4.5 * 2000
    assert traffic(None, both, 500, 32) == 176 * 2000
    assert traffic("active", both, 500, 32) == 100 * 2000


@pytest.mark.parametrize("merging", [None, *ROLES])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_a_run_costs_what_was_calculated(
    merging: RoleName | None, only_active: int, only_passive: int, shared: int
) -> None:
    """The exponentiations of each party, and the bytes of all sets that are sent."""
    both = [b"b%d" % i for i in range(shared)]
    ids = {
        "active": [b"a%d" % i for i in range(only_active)] + both,
        "passive": both + [b"p%d" % i for i in range(only_passive)],
    }
    active, passive = (
        Side(role, CountingGroup(GROUP), ids[role], MemoryStorage(), merging=merging)
        for role in ROLES
    )
    links: list[RecordingLink] = []

    def wrap(first: Link, second: Link) -> tuple[Link, Link]:
        links.append(RecordingLink(first))
        return links[0], second

    views = attempt_both(active, passive, wrap).views()
    assert is_ideal(ids["active"], ids["passive"], *views)
    of_both = Sizes(len(ids["active"]), len(ids["passive"]))
    for side in (active, passive):
        assert side.group.raised == own_exponentiations(merging, side.role, of_both, shared)
    raised = active.group.raised + passive.group.raised
    assert raised == exponentiations(merging, of_both, shared)
    chunks = (r.message for r in links[0].records if isinstance(r.message, SetChunk))
    sent = sum(len(chunk.elements) for chunk in chunks)
    assert sent == traffic(merging, of_both, shared, GROUP.width)


def test_the_exchanges_of_both_protocols_are_distinct() -> None:
    names: tuple[ProtocolName, ...] = ("algorithm-1", "merged")
    assert set(EXCHANGES) == set(names)
    every = [exchange for name in names for exchange in EXCHANGES[name]]
    assert len({exchange.channel for exchange in every}) == len(every)
    steps = [step for each in every for step in (each.out, each.back) if step is not None]
    assert sorted([*steps, Step.ANCHORS]) == sorted(Step)
    assert max(len(exchanges) for exchanges in EXCHANGES.values()) <= MAX_EXCHANGES
