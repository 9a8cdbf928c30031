"""Ranks in the union, found by sorted streams, against a lookup in whole arrays."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError, ProtocolViolation
from florist.common.groups import make_group
from florist.common.psu import ranks as ranks_module
from florist.common.psu import set_stream
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.journal import Journal
from florist.common.psu.keys import Keys
from florist.common.psu.ranks import find_ranks, first_row, row_numbers, with_rows
from florist.common.psu.stored_sets import StoredSet, writing_set
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.psu.union_work import UnionWork
from florist.common.storage.element_sets import find_rows, sorted_set
from florist.common.storage.files import FolderStorage
from tests.support.memory_storage import MemoryStorage
from tests.support.psu import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage

GROUP = make_group("x25519")
WIDTH = GROUP.width
KEYS = Keys.fresh(GROUP)


def universe_of(size: int, seed: int, width: int = WIDTH) -> Elements:
    """Random UIDs, some of which share their first eight bytes."""
    numbers = np.random.default_rng(seed)
    rows = numbers.integers(0, 256, (size, width), dtype=np.uint8)
    rows[: size // 2, :8] = numbers.integers(0, 2, (size // 2, 8))
    return sorted_set(rows)


def work_in(storage: Storage, memory: int = UNLIMITED) -> UnionWork:
    journal = Journal(storage, WIDTH, b"")
    journal.begin_part(b"", 7)
    return UnionWork(LocalExecutor(GROUP), KEYS, journal, frozenset(), memory)


def stored(storage: Storage, name: str, rows: Elements) -> StoredSet:
    with writing_set(storage, name) as writer:
        writer.append(np.ascontiguousarray(rows))
    return StoredSet(storage, name, rows.shape[1], writer.tally.facts)


def find(work: UnionWork, universe: Elements, own: Elements) -> ranks_module.StoredRanks:
    whole = stored(work.journal.storage, "universe", universe)
    blocks = (own[start : start + 7] for start in range(0, len(own), 7))
    return find_ranks(work, whole, with_rows(blocks, 0), len(own))


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(0, 200),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
    memory=st.integers(0, 4000),
    part=st.integers(1, 50),
    width=st.sampled_from([WIDTH, UID_BYTES]),
)
def test_ranks_by_runs_and_merges(
    size: int, share: float, seed: int, memory: int, part: int, width: int
) -> None:
    universe = universe_of(size, seed, width)
    chosen = np.random.default_rng(seed).permutation(size)[: int(share * size)]
    own = universe[chosen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_stream, "CHUNK_BYTES", 8 * WIDTH)
        patch.setattr(ranks_module, "_PART", part)
        found = find(work_in(MemoryStorage(), memory), universe, own)
        assert found.all().tolist() == find_rows(universe, own).tolist() == chosen.tolist()
        for count in (0, len(own) // 3, len(own)):
            parts = list(found.parts(count))
            assert all(0 < len(each) <= part for each in parts)
            assert [rank for each in parts for rank in each.tolist()] == chosen[:count].tolist()


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 3))
def test_rows_are_numbered_across_chunks(sizes: list[int], partition: int) -> None:
    rows = universe_of(sum(sizes), 1)
    bounds = np.cumsum([0, *sizes]).tolist()
    chunks = [rows[start:stop] for start, stop in pairwise(bounds)]
    first = first_row(partition)
    records = list(with_rows(chunks, first))
    assert [len(each) for each in records] == sizes
    joined = np.concatenate([np.empty((0, WIDTH + 8), np.uint8), *records])
    assert np.array_equal(joined[:, :WIDTH], rows)
    assert row_numbers(joined).tolist() == list(range(first, first + len(rows)))


def test_the_rows_of_partitions_are_disjoint_and_in_order() -> None:
    starts = [first_row(partition) for partition in range(1000)]
    assert starts[0] == 0
    assert all(later - earlier == 1 << 48 for earlier, later in pairwise(starts))
    assert starts[-1] < 1 << 61, "larger numbers stand for no row"


@pytest.mark.parametrize("memory", [0, UNLIMITED])
def test_a_uid_outside_the_union_or_a_duplicate_is_refused(memory: int) -> None:
    universe = universe_of(100, 1)
    own = universe[::3]
    for others, reason in ((universe[::2], "in the union"), (universe[:0], "in the union")):
        with pytest.raises(ProtocolViolation, match=reason):
            find(work_in(MemoryStorage(), memory), others, own)
    with pytest.raises(ProtocolViolation, match="same UID"):
        find(work_in(MemoryStorage(), memory), universe, np.concatenate([own, own[5:6]]))


def test_only_the_ranks_are_left_on_disk(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "work")
    universe = universe_of(300, 1)
    find(work_in(storage, 2000), universe, universe[::-1])
    assert {entry.name for entry in storage.folder.iterdir()} == {
        "journal.json",
        "universe",
        ranks_module.RANKS,
    }


@pytest.mark.parametrize("which", [1, 2])
def test_a_full_disk_is_reported(tmp_path: Path, which: int) -> None:
    """Whichever temporary file cannot be written."""

    class Full(FolderStorage):
        files = 0

        @contextmanager
        def scratch(self) -> Iterator[BinaryIO]:
            self.files += 1
            if self.files < which:
                with super().scratch() as file:
                    yield file
            else:
                with self.disk_errors(), open("/dev/full", "r+b", buffering=0) as file:  # noqa: PTH123
                    yield file

    work = work_in(Full(tmp_path / "work"), 10_000)
    universe = universe_of(300, 1)
    with pytest.raises(ConfigurationError, match=r"work.*No space left.*start again") as caught:
        find(work, universe, universe[::-1])
    assert caught.value.will_reconnect, "the peer should wait"
    assert work.journal.storage.size(ranks_module.RANKS) is None
