"""What a union takes of this machine: memory, kept within a limit, and disk, told in advance."""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import suppress

import pyarrow as pa

log = logging.getLogger("florist.align")

#: Bytes for what is not measured beforehand: messages under way on five channels, chunks being
#: raised, places in the union, memory that was freed but not given back.
RESERVE = 96_000_000

#: Bytes that sorting gets in any case: less would make runs so many that merging them is slow.
LEAST = 32_000_000


#: glibc's name for the size from which on an allocation is returned as soon as it is freed.
_M_MMAP_THRESHOLD = -3


def keep_memory_tight() -> None:
    """Have large arrays go back to the system when they are freed; for the rest of the process.

    By default the C library keeps ever larger ones, once it has seen them freed, and the process
    grows beyond what is in use.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 20)


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
    return min(max(limit - taken, LEAST) // 2, max(limit // 8, LEAST // 2))


def resident_bytes() -> int:
    """Memory that this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file on a disk
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def disk_needed(width: int, own: int, peer: int) -> int:
    """Bytes on disk at most, for a union of sets of these sizes, of elements of `width` bytes.

    Kept to go on from after a loss: our hashed IDs, their UIDs, both sets after the first round,
    the union. For a time beside them: the sets being sorted.
    """
    union = own + peer
    return width * ((own + own) + (own + peer) + union + (own + peer)) + 8 * own
