"""Whole arrays in slices, on a fixed number of threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from florist.common.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

#: Slices start at multiples of this, so that only the last one leaves vector lanes empty.
_ALIGNMENT = 8


class Threads:
    """Runs work on slices in parallel; it pays where the work releases the GIL."""

    def __init__(self, count: int = 0) -> None:
        """`count` threads, or as many as this process has cores if 0."""
        if count < 0:
            raise ConfigurationError(f"threads: {count} is negative; 0 means all cores")
        self.count = count or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="group")

    def map_slices(
        self, work: Callable[[int, int], _Result], length: int, largest: int
    ) -> list[_Result]:
        """`work(start, stop)` for slices that cover `range(length)`; the results in order.

        A slice has at most about `largest` items, so that an interrupt is soon noticed. If `work`
        raises, slices that have not begun are left out.
        """
        slices = max(self.count, -(-length // largest))
        step = max(_ALIGNMENT, -(-length // slices // _ALIGNMENT) * _ALIGNMENT)
        if length <= step:
            return [work(0, length)]
        starts = range(0, length, step)
        return list(self._pool.map(work, starts, (min(s + step, length) for s in starts)))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
