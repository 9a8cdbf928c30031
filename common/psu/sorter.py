"""Sorts more rows than fit in memory: sorted runs in a scratch file, then a merge by ranges.

Of every run some rows are remembered, evenly spaced, and where they are. These samples of all runs
together tell how to cut the whole into ranges that fit in memory: each range is read from all runs
and merged at once, so nothing is done row by row. What fits in memory at all is sorted there.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from florist.common.groups.element_sets import merged, rows_up_to, sorted_set
from florist.common.psu.stored_sets import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.groups.group import Elements
    from florist.common.psu.storage import Storage


@contextmanager
def sorting(
    storage: Storage,
    width: int,
    room: int,
    expected: int,
    sort: Callable[[Elements], Elements] = sorted_set,
) -> Iterator[Sorter]:
    """A sorter of rows of `width` bytes, whose scratch file is gone after the block.

    Args:
        storage: for the scratch file, should it be needed.
        width: a multiple of 8.
        room: bytes of memory that it may take.
        expected: about how many rows will come.
        sort: sorts what is in memory, as `sorted_set` does.
    """
    with ExitStack() as files:
        yield Sorter(storage, width, rows_in_room(width, room), expected, files, sort)


def rows_in_room(width: int, room: int) -> int:
    """How many rows can be sorted, or merged, in so many bytes of memory."""
    # Merging holds the rows as read, side by side, and in order; and a key and a place of each.
    return max(4, room // (3 * width + 24))


class Sorter:
    """Takes rows in any order and gives them sorted, once; repeated rows stay."""

    def __init__(
        self,
        storage: Storage,
        width: int,
        capacity: int,
        expected: int,
        files: ExitStack,
        sort: Callable[[Elements], Elements],
    ) -> None:
        self._sort = sort
        self._storage = storage
        self._width = width
        self._capacity = capacity
        self._files = files
        self._buffer: Elements | None = None
        self._expected = expected
        self._filled = 0
        self._scratch: BinaryIO | None = None
        self._runs: list[_Run] = []
        self.count = 0

    def add(self, rows: Elements) -> None:
        """Take more rows."""
        while len(rows):
            if self._buffer is None:
                left = self._expected - self.count
                size = min(self._capacity, left) if left > 0 else self._capacity
                self._buffer = np.empty((size, self._width), dtype=np.uint8)
            part = rows[: len(self._buffer) - self._filled]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            self.count += len(part)
            rows = rows[len(part) :]
            if len(rows):  # there are more than the buffer holds
                self._write_run()

    def blocks(self) -> Iterator[Elements]:
        """All rows in ascending order; the sorter cannot be used again."""
        if self._runs and self._filled:
            self._write_run()
        if self._runs:
            yield from self._merge()
        elif self._buffer is not None:
            ordered = self._sort(self._buffer[: self._filled])
            self._buffer = None
            yield ordered

    def _write_run(self) -> None:
        assert self._buffer is not None
        if self._scratch is None:
            self._scratch = self._files.enter_context(self._storage.scratch())
        ordered = self._sort(self._buffer[: self._filled])
        # Spaced so, the samples of all runs and the rows read ahead of them take the least memory.
        spacing = max(1, isqrt(self._capacity))
        lasts = np.minimum(np.arange(spacing, len(ordered) + spacing, spacing), len(ordered)) - 1
        start = self.count - self._filled
        self._runs.append(_Run(start, len(ordered), spacing, ordered[lasts].copy()))
        self._scratch.write(ordered.data)
        self._filled = 0
        self._buffer = None if len(self._buffer) < self._capacity else self._buffer

    def _merge(self) -> Iterator[Elements]:
        assert self._scratch is not None
        self._buffer = None
        spacing = self._runs[0].spacing
        # Between two bounds are so many samples; a run has at most one part-read block beyond them.
        every = max(1, self._capacity // spacing - len(self._runs))
        samples = sorted_set(np.concatenate([run.samples for run in self._runs]))
        places = [*range(every - 1, len(samples) - 1, every), len(samples) - 1]
        for bound in (samples[place].tobytes() for place in places):
            yield merged([run.read_up_to(bound, self._scratch) for run in self._runs])


@dataclass(slots=True, eq=False)
class _Run:
    """A sorted run in the scratch file: blocks of `spacing` rows, the last row of each known."""

    start: int
    rows: int
    spacing: int
    samples: Elements
    _read: int = 0
    _rest: Elements | None = None

    def read_up_to(self, bound: bytes, file: BinaryIO) -> Elements:
        """The rows up to `bound` that were not given before."""
        blocks = min(rows_up_to(self.samples, bound) + 1, len(self.samples))
        stop = min(blocks * self.spacing, self.rows)
        width = self.samples.shape[1]
        have = self._rest
        if stop > self._read:
            file.seek((self.start + self._read) * width)
            more = read_rows(file, stop - self._read, width)
            have = more if have is None or not len(have) else np.concatenate([have, more])
            self._read = stop
        assert have is not None
        count = rows_up_to(have, bound)
        self._rest = have[count:].copy()
        return have[:count]
