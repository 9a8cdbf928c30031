"""What a union takes of this machine: memory, kept within a limit, and disk, told in advance."""

from __future__ import annotations

import logging
import math
import os

import pyarrow as pa

from florist.common.psu.partitions import BLOCK_ROWS
from florist.common.psu.ranks import RANK_BYTES, ROW_BYTES
from florist.common.storage.external_sorter import rows_on_disk

log = logging.getLogger("florist.align")

#: Bytes for what is not measured beforehand: messages under way on five channels, chunks being
#: raised, blocks of sorted streams, memory that was freed but not given back.
RESERVE = 96_000_000

#: Bytes that the program has before it begins, at most, as a rule.
PROGRAM = 200_000_000

#: Bytes that sorting gets in any case: less would make runs so many that merging them is slow.
LEAST = 32_000_000


def room_for_sorting(limit: int, executor: int = 0) -> int:
    """Bytes for each of two sorters, so that this process as a whole stays within `limit`.

    What the process has already counts, and what its executor will take. No sorter gets more than
    an eighth of the limit: longer runs would hardly make it faster.
    """
    pa.default_memory_pool().release_unused()  # reading tables leaves a lot
    reserve = RESERVE + executor
    taken = resident_bytes() + reserve
    if limit - taken < LEAST:
        log.warning(
            "alignment.memory_limit: %s MB cannot be kept: it will take about %s MB, of which the "
            "program has %s already",
            limit // 10**6,
            (taken + LEAST) // 10**6,
            (taken - reserve) // 10**6,
        )
    return _share(limit, taken)


def _share(limit: int, taken: int) -> int:
    return min(max(limit - taken, LEAST) // 2, max(limit // 8, LEAST // 2))


def _largest_share(size: int, branches: int) -> int:
    """Rows of a branch at most: blocks of rows, or a range of values, of which some have more."""
    mean = size / branches
    return math.ceil(mean + 8 * math.sqrt(mean)) + BLOCK_ROWS


def resident_bytes() -> int:
    """Memory that this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file on a disk
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def disk_needed(width: int, own: int, peer: int, limit: int, branches: int = 1) -> int:
    """Bytes on disk at most, for a union of sets of these sizes, of elements of `width` bytes.

    Kept to go on from after a loss: our hashed IDs, their UIDs, both sets after the first round,
    the union. Of the ranks in it, the result. For a time beside them: the sets being sorted,
    within `limit` bytes of memory; at the end, our UIDs with their rows, and rows with ranks. The
    digests of our IDs, sorted before all else, take less.

    With `branches`, it is what each of them needs, with what waits for its partitions.
    """
    if branches > 1:
        own, peer = (_largest_share(size, branches) for size in (own, peer))
        waiting = (width + ROW_BYTES) * (own + peer)
        return waiting + disk_needed(width, own, peer, limit)
    room = _share(limit, PROGRAM + RESERVE)

    def sorted_rows(width: int, rows: int) -> int:
        return width * rows_on_disk(width, room, rows)

    union = own + peer
    kept = width * ((own + own) + (own + peer) + union) + RANK_BYTES * own
    return kept + max(
        sorted_rows(width, own) + sorted_rows(width, peer),
        sorted_rows(width, union),
        sorted_rows(width + ROW_BYTES, own) + sorted_rows(ROW_BYTES + RANK_BYTES, own),
    )
