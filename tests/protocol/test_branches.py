"""A union computed by several branches of each party equals that of single processes."""

from __future__ import annotations

import io
from dataclasses import replace
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
from tests.protocol.test_psu_against_ideal import overlapping_sets
from tests.support.branches import joined, run_branches
from tests.support.ideal_union import is_ideal
from tests.support.tampering import TamperingLink

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message

X25519 = make_group("x25519")


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "BLOCK_ROWS", 3)
        yield


@settings(max_examples=25, deadline=None)
@given(overlapping_sets(largest=60), st.integers(2, 4), st.sampled_from([0, 1, 5]))
def test_branches_compute_the_ideal_union(
    sets: tuple[list[bytes], list[bytes]], count: int, planted: int
) -> None:
    active, passive = map(joined, run_branches(X25519, sets, count, planted=planted))
    assert is_ideal(*sets, active, passive)
    assert active.sizes.planted == 2 * planted


def test_another_group_is_split_into_ranges_too() -> None:
    sets = [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 17)]
    outcomes = run_branches(make_group("modp2048"), sets, 2)
    active, passive = map(joined, outcomes)
    assert is_ideal(*sets, active, passive)


def test_many_chunks_on_disk_in_little_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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


def test_elements_of_another_range_are_refused() -> None:
    """A set that is sorted within each branch, but not across branches, is not shuffled."""
    first, second = linked_pair(), linked_pair()
    crossed = [(first[0], second[1]), (second[0], first[1])]
    sets = [b"%d" % i for i in range(42)], [b"%d" % i for i in range(20, 50)]
    active, passive = run_branches(X25519, sets, 2, links=list(crossed))
    reasons = errors([*active, *passive])
    assert reasons
    assert all("not shuffled by sorting" in each for each in reasons)


@pytest.mark.parametrize("step", [Step.ACTIVE_FIRST_ROUND, Step.ACTIVE_HASHING])
def test_counts_must_sum_to_the_announced_size(step: Step) -> None:
    pairs = [linked_pair(), linked_pair()]

    def tamper(sent: Message) -> Iterable[Message]:
        if isinstance(sent, SetHeader) and sent.step is step:
            return [SetHeader(sent.step, sent.count + 1)]
        return [sent]

    links: list[tuple[Link, Link]] = [(TamperingLink(pairs[0][0], tamper), pairs[0][1]), pairs[1]]
    sets = [b"%d" % i for i in range(40)], [b"%d" % i for i in range(20, 50)]
    _, passive = run_branches(X25519, sets, 2, links=links)
    (*_, reason) = errors(passive)
    assert "the peer announces" in reason


def test_a_failed_link_ends_every_branch() -> None:
    pairs = [linked_pair(), linked_pair(), linked_pair()]

    def tamper(sent: Message) -> Iterable[Message]:
        if isinstance(sent, SetHeader) and sent.step is Step.ACTIVE_FIRST_ROUND:
            for link in pairs[1]:
                link.fail(PeerLost("cut"))
        return [sent]

    links: list[tuple[Link, Link]] = [
        pairs[0],
        (TamperingLink(pairs[1][0], tamper), pairs[1][1]),
        pairs[2],
    ]
    sets = [b"%d" % i for i in range(40)], [b"%d" % i for i in range(20, 50)]
    for outcomes in run_branches(X25519, sets, 3, links=links):
        assert all(isinstance(each, FloristError) for each in outcomes)
