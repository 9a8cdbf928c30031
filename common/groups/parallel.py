"""Process arrays in slices on a fixed number of threads."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.errors import ConfigurationError
from florist.common.core.priority_pool import PriorityPool

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

#: Slices start at multiples of this, so that only the last one has unused vector lanes.
_ALIGNMENT = 8


class Threads:
    """Runs work on slices in parallel; useful if the work releases the GIL."""

    def __init__(self, count: int = 0) -> None:
        """Use `count` threads; 0 means one per core that this process may use."""
        if count < 0:
            raise ConfigurationError(f"threads: must be at least 0, not {count}; 0 means all cores")
        self.count = count or len(os.sched_getaffinity(0))
        self._pool = PriorityPool(self.count, "group")

    def map_slices(
        self, work: Callable[[int, int], _Result], length: int, largest: int
    ) -> list[_Result]:
        """Call `work(start, stop)` for slices that cover `range(length)`; return results in order.

        A slice has at most about `largest` items, so that interrupts and tasks of high priority do
        not wait long. If `work` raises, slices that have not started are skipped.
        """
        slices = max(self.count, -(-length // largest))
        step = max(_ALIGNMENT, -(-length // slices // _ALIGNMENT) * _ALIGNMENT)
        if length <= step:
            return [work(0, length)]
        parts = [
            self._pool.submit(partial(work, start, min(start + step, length)))
            for start in range(0, length, step)
        ]
        try:
            return [part.result() for part in parts]
        finally:
            for part in parts:
                part.cancel()

    def close(self) -> None:
        """Wait for running work and stop the threads."""
        self._pool.close()
