"""Memory and disk space of a union: memory is kept within a limit, disk space is estimated."""

from __future__ import annotations

import logging
import math
import os

import pyarrow as pa

from florist.common.psu.partitions import BLOCK_ROWS
from florist.common.psu.ranks import RANK_BYTES, ROW_BYTES
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.storage.external_sorter import rows_on_disk

log = logging.getLogger("florist.align")

#: Bytes for what cannot be measured beforehand: messages in transit on five channels, chunks being
#: raised, blocks of sorted streams, memory that was freed but not returned to the system.
RESERVED_BYTES = 96_000_000

#: Bytes that the program typically uses at most before a union starts.
PROGRAM_BYTES = 200_000_000

#: Bytes that sorting gets in any case: with less there would be too many runs to merge quickly.
MIN_SORTING_BYTES = 32_000_000


def memory_for_sorting(limit: int, executor: int = 0) -> int:
    """Return the bytes for each of two sorters, so that this process stays within `limit`.

    The memory that the process uses already counts, and so does what its executor will need. No
    sorter gets more than an eighth of the limit: longer runs would hardly be faster.
    """
    pa.default_memory_pool().release_unused()  # reading tables leaves much unused memory
    reserve = RESERVED_BYTES + executor
    taken = resident_bytes() + reserve
    if limit - taken < MIN_SORTING_BYTES:
        log.warning(
            "alignment.memory_limit: %s MB is too low: the alignment will use about %s MB, of "
            "which the program uses %s MB already",
            limit // 10**6,
            (taken + MIN_SORTING_BYTES) // 10**6,
            (taken - reserve) // 10**6,
        )
    return _share(limit, taken)


def _share(limit: int, taken: int) -> int:
    return min(max(limit - taken, MIN_SORTING_BYTES) // 2, max(limit // 8, MIN_SORTING_BYTES // 2))


def _largest_share(size: int, partitions: int) -> int:
    """Return the most rows of a partition: ranges of values differ somewhat in size."""
    mean = size / partitions
    return math.ceil(mean + 8 * math.sqrt(mean)) + BLOCK_ROWS


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a file on disk
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def disk_needed(
    width: int,
    own: int,
    peer: int,
    limit: int,
    merges: bool | None = None,  # noqa: FBT001 - as in `_merged`
    partitions: int = 1,
) -> int:
    """Return the most bytes on disk for a union of sets of these sizes, of `width`-byte elements.

    Sets are sorted within `limit` bytes of memory. The digests of our IDs, which are sorted before
    all this, need less. With `partitions`, it is what each of them needs, with the rows that others
    fetch from it.

    Args:
        width: bytes of an element.
        own: the size of our set.
        peer: the size of the peer's set.
        limit: bytes of memory.
        merges: whether we merge, by the merged protocol; None for Algorithm 1.
        partitions: into how many the union is split.
    """
    if partitions > 1:
        own, peer = (_largest_share(size, partitions) for size in (own, peer))
        offered = (width + ROW_BYTES) * (own + peer)
        return offered + disk_needed(width, own, peer, limit, merges)
    memory = _share(limit, PROGRAM_BYTES + RESERVED_BYTES)

    def sorted_rows(width: int, rows: int) -> int:
        return width * rows_on_disk(width, memory, rows)

    union, record = own + peer, width + ROW_BYTES
    # Stored in the end: our hashed IDs and our ranks. Temporarily: rows with ranks, being sorted.
    result, by_row = width * own + RANK_BYTES * own, sorted_rows(ROW_BYTES + RANK_BYTES, own)
    if merges is None:
        # Stored: our UIDs, both sets after the first round, and the union. Temporarily: answers of
        # step 11 or 12, the union as received, to check planted pairs, and our UIDs with rows.
        kept = width * (own + (own + peer) + union)
        return (result + kept) + max(
            width * own + sorted_rows(width, own) + sorted_rows(width, peer),
            width * own + width * union + sorted_rows(width, union),
            sorted_rows(record, own) + by_row,
        )
    # Stored: the union, and of each side's elements what has returned, or what will be sent. The
    # completing party has rows with its own, and the remainder. Temporarily: what arrives of both
    # sides' elements and is not processed yet.
    uid_record = UID_BYTES + ROW_BYTES
    arriving = width * (own + peer)
    if merges:
        stored = width * (own + peer) + UID_BYTES * union
        return (result + stored) + max(
            arriving + sorted_rows(width, peer),
            arriving + sorted_rows(width, own),
            sorted_rows(uid_record, own) + by_row,
        )
    stored = record * own + 2 * width * peer + uid_record * union
    return (result + stored) + max(
        arriving + ROW_BYTES * own + sorted_rows(record, own) + sorted_rows(width, peer),
        sorted_rows(uid_record, union),
        by_row,
    )
