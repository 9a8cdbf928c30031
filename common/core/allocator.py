"""What becomes of memory that a stage frees: kept for the next moment, or given back.

By default the C library of Linux does some of both, by what it has seen so far. For other C
libraries nothing happens here.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names of glibc's settings, in malloc.h: the size from which on an allocation has pages of its own,
# which go back when it is freed; and how much free memory may lie at the end of the heap.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGEST_MMAP_THRESHOLD = 32 << 20


def give_back() -> None:
    """From now on: the process does not grow beyond what is in use."""
    _set(_M_MMAP_THRESHOLD, 1 << 20)
    _set(_M_TRIM_THRESHOLD, 1 << 20)


@contextmanager
def kept() -> Iterator[None]:
    """For a loop that needs the same memory again and again.

    Pages that went back would be cleared and mapped anew in each round, which for tensors of some
    megabytes takes as long as to fill them. Nor does the garbage collector look at what was there
    before the loop. After it, memory is given back.
    """
    _set(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    _set(_M_TRIM_THRESHOLD, 1 << 30)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        give_back()
        _call("malloc_trim", 0)


def _set(name: int, value: int) -> None:
    _call("mallopt", name, value)


def _call(function: str, *arguments: int) -> None:
    found = getattr(ctypes.CDLL(None), function, None)
    if found is not None:
        found(*arguments)
