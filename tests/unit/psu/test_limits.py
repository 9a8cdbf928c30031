"""Memory and disk space of a union."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.psu import limits
from florist.common.psu.limits import disk_needed, memory_for_sorting

if TYPE_CHECKING:
    import pytest

WIDTH = 32
LIMIT = 512_000_000


def test_the_disk_for_the_ranks_is_counted() -> None:
    """If the peer's set is small, the second round and the sorts at the end are about as large."""
    kept = 10**6 * (4 * WIDTH + 8)
    assert disk_needed(WIDTH, 10**6, 0, LIMIT) == kept + 10**6 * max(2 * WIDTH, WIDTH + 8 + 16)
    # With so many runs that they are merged twice, their rows are temporarily on disk twice.
    equal = {size: disk_needed(WIDTH, size, size, LIMIT) / size for size in (10**7, 10**9)}
    assert equal[10**7] == 10 * WIDTH + 8 < equal[10**9] < 12 * WIDTH + 8


def test_memory_is_divided_between_sorters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "resident_bytes", lambda: 200_000_000)
    assert 2 * memory_for_sorting(360_000_000) + 200_000_000 + limits.RESERVED_BYTES == 360_000_000
    assert memory_for_sorting(10**9) == 10**9 // 8
    assert 2 * memory_for_sorting(256_000_000) == limits.MIN_SORTING_BYTES


def test_a_partition_needs_its_share_of_the_disk_and_some_more() -> None:
    whole = disk_needed(32, 10**8, 10**8, 2 * 10**9)
    each = disk_needed(32, 10**8, 10**8, 2 * 10**9, partitions=16)
    assert whole / 16 < each < whole / 8
