"""Whether memory that a stage frees is kept by the process or returned to the operating system.

By default, glibc does some of both, depending on earlier allocations. With other C libraries, these
functions do nothing.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Parameters of glibc's mallopt, from malloc.h: the size from which an allocation gets pages of its
# own, which are returned as soon as it is freed; and how much free memory may stay at the end of
# the heap.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_MAX_MMAP_THRESHOLD = 32 << 20


def return_freed_memory() -> None:
    """From now on, return freed memory, so that the process is hardly larger than what it uses."""
    _set(_M_MMAP_THRESHOLD, 1 << 20)
    # A few chunks of a union stay; otherwise their pages would be cleared for each new one.
    _set(_M_TRIM_THRESHOLD, 8 << 20)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory within the block, for a loop that allocates the same sizes repeatedly.

    Otherwise the system would map and clear the pages again in every iteration, which for tensors
    of a few megabytes takes as long as filling them. The garbage collector also skips all objects
    that exist before the loop. Afterwards, freed memory is returned again.
    """
    _set(_M_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD)
    _set(_M_TRIM_THRESHOLD, 1 << 30)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        return_freed_memory()
        _call("malloc_trim", 0)


def _set(parameter: int, value: int) -> None:
    _call("mallopt", parameter, value)


def _call(function: str, *arguments: int) -> None:
    found = getattr(ctypes.CDLL(None), function, None)
    if found is not None:
        found(*arguments)
