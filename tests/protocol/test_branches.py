"""A union computed by several branches of each party equals that of single processes."""

from __future__ import annotations

import io
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.cluster.worker_group import Mailbox, WorkerGroup
from florist.common.core.errors import FloristError, PeerLost, ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu import partitions, set_stream, shared_sorting
from florist.common.psu.partitions import blocks_dealt, share, value_cuts
from florist.common.psu.shared_sorting import Scatter
from florist.common.storage.element_sets import sorted_set
from florist.common.storage.files import FolderStorage
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import SetHeader, Step
from tests.protocol.test_psu_against_ideal import by_every_protocol, overlapping_sets
from tests.support.branches import joined, run_branches
from tests.support.ideal_union import is_ideal
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.support.tampering import Tamper

X25519 = make_group("x25519")
SETS = [b"%d" % i for i in range(40)], [b"%d" % i for i in range(20, 50)]


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "BLOCK_ROWS", 3)
        yield


@by_every_protocol
@settings(max_examples=25, deadline=None)
@given(
    sets=overlapping_sets(largest=60),
    count=st.integers(2, 4),
    planted=st.sampled_from([0, 1, 5]),
)
def test_branches_compute_the_ideal_union(
    merging: RoleName | None, sets: tuple[list[bytes], list[bytes]], count: int, planted: int
) -> None:
    outcomes = run_branches(X25519, sets, count, planted=planted, merging=merging)
    active, passive = map(joined, outcomes)
    assert is_ideal(*sets, active, passive)
    assert active.sizes.planted == 2 * planted


@by_every_protocol
def test_another_group_is_split_into_ranges_too(merging: RoleName | None) -> None:
    sets = [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 17)]
    outcomes = run_branches(make_group("modp2048"), sets, 2, planted=2, merging=merging)
    active, passive = map(joined, outcomes)
    assert is_ideal(*sets, active, passive)


@by_every_protocol
@pytest.mark.parametrize("planted", [0, 30])
def test_many_chunks_on_disk_in_little_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, merging: RoleName | None, planted: int
) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", 32 * 16)
    monkeypatch.setattr(shared_sorting, "_CUT_BYTES", 32 * 50)
    monkeypatch.setattr(shared_sorting, "_FETCH_BYTES", 32 * 20)
    folders = iter(range(100))
    sets = [b"%d" % i for i in range(900)], [b"%d" % i for i in range(600, 1300)]
    outcomes = run_branches(
        X25519,
        sets,
        3,
        memory=3_000,
        make_storage=lambda: FolderStorage(tmp_path / str(next(folders))),
        planted=planted,
        merging=merging,
    )
    active, passive = map(joined, outcomes)
    assert is_ideal(*sets, active, passive)


# -- how rows and values are split -----------------------------------------------------------------


@given(st.integers(0, 100), st.integers(1, 5))
def test_a_share_is_the_rows_dealt(rows: int, count: int) -> None:
    dealt = [0] * count
    for branch, size in blocks_dealt(rows, count):
        dealt[branch] += size
    assert dealt == [share(rows, branch, count) for branch in range(count)]
    assert sum(dealt) == rows


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 20), st.integers(0, 99))
def test_all_rows_are_scattered_to_their_ranges(
    rows: int, count: int, at_once: int, seed: int
) -> None:
    elements = np.random.default_rng(seed).integers(0, 256, (rows, 16), dtype=np.uint8)
    cuts = value_cuts(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_sorting, "_CUT_BYTES", 16 * at_once)
        patch.setattr(shared_sorting, "_FETCH_BYTES", 16 * 3)
        scatter = Scatter(io.BytesIO(), 16, cuts)
        for start in range(0, rows, 7):
            scatter.add(elements[start : start + 7])
        counts = scatter.counts()
        workers = WorkerGroup(0, mailbox := Mailbox(), [mailbox], lambda: None)
        with mailbox.offer("here", scatter):
            parts = [
                np.concatenate(
                    [np.empty((0, 16), np.uint8), *replace(workers, number=owner).fetch("here", 16)]
                )
                for owner in range(count)
            ]
    assert [len(part) for part in parts] == counts
    ends = [0, *cuts.tolist(), 1 << 64]
    for owner, part in enumerate(parts):
        firsts = [int.from_bytes(row[:8].tobytes()) for row in part]
        assert all(ends[owner] <= first < ends[owner + 1] for first in firsts)
    everything = np.concatenate(parts) if parts else elements
    assert np.array_equal(sorted_set(everything), sorted_set(elements))


# -- a peer that violates the protocol -------------------------------------------------------------


def errors(outcomes: Iterable[object]) -> list[str]:
    return [str(each) for each in outcomes if isinstance(each, ProtocolViolation)]


@by_every_protocol
def test_elements_of_another_range_are_refused(merging: RoleName | None) -> None:
    """A set that is sorted within each branch, but not across branches, is not shuffled.

    The branches of each party have as many rows, so that nothing else is wrong.
    """
    first, second = linked_pair(grace=0.05), linked_pair(grace=0.05)
    crossed: list[tuple[Link, Link]] = [(first[0], second[1]), (second[0], first[1])]
    sets = [b"%d" % i for i in range(42)], [b"%d" % i for i in range(20, 50)]
    active, passive = run_branches(X25519, sets, 2, links=crossed, merging=merging)
    reasons = errors([*active, *passive])
    assert reasons
    assert all("not shuffled by sorting" in each for each in reasons)


#: Steps, who sends them and by which protocol; the sender announces this many elements more.
COUNTS: list[tuple[RoleName | None, RoleName, Step, int]] = [
    (None, "active", Step.ACTIVE_FIRST_ROUND, 1),
    (None, "active", Step.ACTIVE_HASHING, 1),
    (None, "passive", Step.PASSIVE_FIRST_ROUND, 1),
    ("active", "active", Step.MERGING_SET, 1),
    ("active", "passive", Step.COMPLETING_SET, 1),
    ("active", "passive", Step.COMPLETING_SET, -1),
    ("active", "passive", Step.MERGE, 1),
    ("active", "active", Step.REMAINDER, len(SETS[0])),
    ("active", "passive", Step.UNION, -1),
    ("passive", "passive", Step.MERGING_SET, -1),
    ("passive", "active", Step.UNION, 1),
]


@pytest.mark.parametrize(("merging", "bad", "step", "more"), COUNTS)
def test_counts_must_sum_to_the_announced_size(
    merging: RoleName | None, bad: RoleName, step: Step, more: int
) -> None:
    pairs = [linked_pair(grace=0.05), linked_pair(grace=0.05)]

    def tamper(sent: Message) -> Iterable[Message]:
        if isinstance(sent, SetHeader) and sent.step is step:
            return [SetHeader(sent.step, sent.count + more)]
        return [sent]

    first, second = pairs[0]
    tampered: tuple[Link, Link] = (
        (TamperingLink(first, tamper), second)
        if bad == "active"
        else (first, TamperingLink(second, tamper))
    )
    outcomes = run_branches(X25519, SETS, 2, links=[tampered, pairs[1]], merging=merging)
    reasons = errors(outcomes[bad == "active"])
    assert reasons
    assert all("the peer announces" in each for each in reasons)


def test_counts_that_sum_up_may_be_split_otherwise() -> None:
    """Only their sum is known, because nobody knows how many elements are in each range.

    Chunks that are missing or too many in a branch are noticed there.
    """
    pairs = [linked_pair(grace=0.05), linked_pair(grace=0.05)]

    def moving(more: int) -> Tamper:
        def tamper(sent: Message) -> Iterable[Message]:
            if isinstance(sent, SetHeader) and sent.step is Step.MERGE:
                return [SetHeader(sent.step, sent.count + more)]
            return [sent]

        return tamper

    links: list[tuple[Link, Link]] = [
        (first, TamperingLink(second, moving(more)))
        for (first, second), more in zip(pairs, (1, -1), strict=True)
    ]
    active, _ = run_branches(X25519, SETS, 2, links=links, merging="active")
    reasons = errors(active)
    assert reasons
    assert all("elements instead of" in each for each in reasons)


STARTS: list[tuple[RoleName | None, Step]] = [
    (None, Step.ACTIVE_FIRST_ROUND),
    ("active", Step.MERGING_SET),
    ("active", Step.COMPLETING_SET_BACK),
    ("active", Step.REMAINDER),
    ("passive", Step.COMPLETING_SET),
    ("passive", Step.MERGE),
    ("passive", Step.UNION),
]


@pytest.mark.parametrize(("merging", "step"), STARTS)
def test_a_failed_link_ends_every_branch(merging: RoleName | None, step: Step) -> None:
    """Each of these steps is sent by the active party."""
    pairs = [linked_pair(grace=0.05) for _ in range(3)]
    cut = Event()

    def tamper(sent: Message) -> Iterable[Message]:
        if isinstance(sent, SetHeader) and sent.step is step:
            cut.set()
            for link in pairs[1]:
                link.fail(PeerLost("cut"))
        return [sent]

    links: list[tuple[Link, Link]] = [
        pairs[0],
        (TamperingLink(pairs[1][0], tamper), pairs[1][1]),
        pairs[2],
    ]
    for outcomes in run_branches(X25519, SETS, 3, links=links, planted=2, merging=merging):
        assert all(isinstance(each, FloristError) for each in outcomes)
    assert cut.is_set()
