"""Memory and disk space of a union."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import pytest

from florist.common.groups import make_group
from florist.common.psu import limits
from florist.common.psu.limits import disk_needed, memory_for_sorting
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.storage.files import FolderStorage
from tests.support.unions import CountingGroup, Side, attempt_both

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName

ROLES: tuple[RoleName, RoleName] = ("active", "passive")
WIDTH = 32
LIMIT = 512_000_000


def test_the_disk_for_the_ranks_is_counted() -> None:
    """If the peer's set is small, the second round and the sorts at the end are about as large."""
    kept = 10**6 * (4 * WIDTH + 8)
    assert disk_needed(WIDTH, 10**6, 0, LIMIT) == kept + 10**6 * max(3 * WIDTH, WIDTH + 8 + 16)
    # With so many runs that they are merged twice, their rows are temporarily on disk twice.
    equal = {size: disk_needed(WIDTH, size, size, LIMIT) / size for size in (10**7, 10**9)}
    assert equal[10**7] == 11 * WIDTH + 8 < equal[10**9] < 13 * WIDTH + 8


def test_the_merged_protocol_needs_about_as_much_disk() -> None:
    """The completing party stores and sorts more than the merging party."""
    merges = disk_needed(WIDTH, 10**7, 10**7, LIMIT, merges=True) / 10**7
    completes = disk_needed(WIDTH, 10**7, 10**7, LIMIT, merges=False) / 10**7
    # Hashed IDs, ranks and UIDs; elements of both sides, and those that arrive; then sorts.
    assert merges == (WIDTH + 8 + 2 * UID_BYTES) + 4 * WIDTH + WIDTH
    # It has rows with its elements, with what it sorts of them, and beside them while it waits.
    assert completes == (WIDTH + 8 + 2 * (UID_BYTES + 8)) + 7 * WIDTH + 3 * 8


class MeteredStorage(FolderStorage):
    """Measures the disk space in use whenever a file is complete or about to be deleted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.open: list[BinaryIO] = []
        self.most = 0

    def measure(self) -> None:
        named = sum(path.stat().st_size for path in self.folder.iterdir() if path.exists())
        for file in self.open:
            file.flush()
        self.most = max(self.most, named + sum(os.fstat(f.fileno()).st_size for f in self.open))

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with super().scratch() as file:
            self.open.append(file)
            yield file
            self.measure()
            self.open.remove(file)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        with super().writing(name) as file:
            yield file
            self.measure()


@pytest.mark.parametrize("merging", [None, "active", "passive"])
def test_a_union_stays_within_the_disk_space_that_it_checks(
    merging: RoleName | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With little memory, so that every set is sorted on disk."""
    monkeypatch.setattr(limits, "_share", lambda *_: 10_000)
    ids = [b"a%d" % i for i in range(900)], [b"a%d" % i for i in range(500, 1900)]
    storages = [MeteredStorage(tmp_path / role) for role in ("active", "passive")]
    group = make_group("x25519")
    sides = [
        Side(role, CountingGroup(group), own, storage, memory=10_000, merging=merging, planted=5)
        for role, own, storage in zip(ROLES, ids, storages, strict=True)
    ]
    attempt_both(sides[0], sides[1]).views()
    for side, storage, own, peer in zip(sides, storages, ids, reversed(ids), strict=True):
        merges = None if merging is None else merging == side.role
        # Planted elements, the journal, and the digests of chunks are not counted.
        allowed = disk_needed(WIDTH, len(own), len(peer), LIMIT, merges) + 8_000
        assert len(own) * WIDTH * 4 < storage.most <= allowed


def test_memory_is_divided_between_sorters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "resident_bytes", lambda: 200_000_000)
    assert 2 * memory_for_sorting(360_000_000) + 200_000_000 + limits.RESERVED_BYTES == 360_000_000
    assert memory_for_sorting(10**9) == 10**9 // 8
    assert 2 * memory_for_sorting(256_000_000) == limits.MIN_SORTING_BYTES


def test_a_partition_needs_its_share_of_the_disk_and_some_more() -> None:
    whole = disk_needed(32, 10**8, 10**8, 2 * 10**9)
    each = disk_needed(32, 10**8, 10**8, 2 * 10**9, partitions=16)
    assert whole / 16 < each < whole / 8
