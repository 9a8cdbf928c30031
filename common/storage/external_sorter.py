"""Sorts more rows than fit in memory: sorted runs in scratch files, then a merge by ranges.

Of every run some rows are remembered, evenly spaced, and where they are. These samples of all runs
together tell how to cut the whole into ranges that fit in memory: each range is read from all runs
and merged at once, so nothing is done row by row. What fits in memory at all is sorted there.

The samples of a run, and what is read of it beyond a range, take memory too. So runs are few: when
they are as many as can be merged at once, they become one run of the next level, which has fewer
samples for its size.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import isqrt
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from florist.common.storage.element_sets import merged, rows_up_to, sorted_set
from florist.common.storage.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage

#: The part of the memory that the runs of one level may take before they are merged; there are
#: seldom more than two levels, and never many.
_SHARE = 4


@contextmanager
def sorting(
    storage: Storage,
    width: int,
    room: int,
    expected: int,
    sort: Callable[[Elements], Elements] = sorted_set,
) -> Iterator[Sorter]:
    """A sorter of rows of `width` bytes, whose scratch files are gone after the block.

    Args:
        storage: for the scratch files, should they be needed.
        width: a multiple of 8.
        room: bytes of memory that it may take.
        expected: about how many rows will come; 0 if it is not known.
        sort: sorts what is in memory, as `sorted_set` does.
    """
    with ExitStack() as files:
        yield Sorter(storage, width, rows_in_room(width, room), expected, files, sort)


def rows_in_room(width: int, room: int) -> int:
    """How many rows can be sorted, or merged, in so many bytes of memory."""
    # Merging holds the rows as read, side by side, and in order; and a key and a place of each.
    return max(4, room // (3 * width + 24))


def rows_on_disk(width: int, room: int, rows: int) -> int:
    """How many rows are in scratch files at most, while so many are sorted."""
    capacity = longest = rows_in_room(width, room)
    while (above := longest * _most_runs(longest, capacity)) < rows:
        longest = above
    # The rows of a level are there twice for a moment: its runs, and the one that they become.
    return rows + (longest if longest > capacity else 0)


def _most_runs(rows: int, capacity: int) -> int:
    """How many runs of so many rows a level has before they are merged."""
    # Each has as many samples as there are rows between them, and so much may be read ahead of it.
    return max(2, capacity // (2 * _SHARE * _spacing(rows)))


def _spacing(rows: int) -> int:
    """From one sample of a run to the next: so, samples and rows read ahead take the least."""
    return max(1, isqrt(rows))


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
        self._levels: list[_Level] = []
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
                self._raise_full_levels()

    def complete(self) -> int:
        """How many rows it has, when no more will be added."""
        return self.count

    def blocks(self) -> Iterator[Elements]:
        """All rows in ascending order; the sorter cannot be used again."""
        if self._levels:
            if self._filled:
                self._write_run()
            self._buffer = None
            levels, self._levels = self._levels, []
            yield from self._merged([run for level in levels for run in level.runs])
        elif self._buffer is not None:
            ordered = self._sort(self._buffer[: self._filled])
            self._buffer = None
            yield ordered

    def _write_run(self) -> None:
        assert self._buffer is not None
        ordered = self._sort(self._buffer[: self._filled])
        self._level(0).write([ordered], _spacing(self._filled))
        self._filled = 0
        self._buffer = None if len(self._buffer) < self._capacity else self._buffer

    def _raise_full_levels(self) -> None:
        """Make one run of the next level of the runs of a level that can have no more."""
        for number, level in enumerate(self._levels):
            longest = max((run.rows for run in level.runs), default=0)
            if len(level.runs) >= _most_runs(longest, self._capacity):
                self._buffer = None  # merging takes all the memory
                self._level(number + 1).write(self._merged(level.runs), _spacing(level.rows))
                level.clear()

    def _level(self, number: int) -> _Level:
        if number == len(self._levels):
            self._levels.append(_Level(self._files.enter_context(self._storage.scratch())))
        return self._levels[number]

    def _merged(self, runs: list[_Run]) -> Iterator[Elements]:
        """The rows of all runs in order, in blocks that fit in memory."""
        for bound in self._bounds(runs):
            yield merged([run.read_up_to(bound) for run in runs])

    def _bounds(self, runs: list[_Run]) -> Iterator[bytes]:
        """Rows that cut the whole into ranges, each small enough; the last is the greatest."""
        samples = sorted_set(np.concatenate([run.weighed_samples() for run in runs]))
        # The rows up to each sample; a run can have some more, fewer than are between two of its.
        reach = np.cumsum(samples[:, self._width :].view(np.int64)[:, 0])
        spacings = [run.spacing for run in runs]
        size = max(1, self._capacity - sum(spacings) - max(spacings))
        cuts = np.searchsorted(reach, np.arange(size, reach[-1], size), side="right") - 1
        cuts = np.unique(np.append(cuts[cuts >= 0], len(samples) - 1))
        return (samples[cut, : self._width].tobytes() for cut in cuts)


@dataclass(slots=True, eq=False)
class _Level:
    """Runs of about the same length, one after the other in a scratch file."""

    file: BinaryIO
    runs: list[_Run] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def write(self, blocks: Iterable[Elements], spacing: int) -> None:
        """One more run, of these blocks: they are sorted, and at least one has a row."""
        start, rows = self.rows, 0
        samples: list[Elements] = []
        last: Elements | None = None
        for block in blocks:
            if len(block):
                samples.append(block[spacing - 1 - rows % spacing :: spacing].copy())
                last = block[-1:].copy()
                rows += len(block)
                self.file.write(block.data)
        assert last is not None
        if rows % spacing:
            samples.append(last)
        self.runs.append(_Run(self.file, start, rows, spacing, np.concatenate(samples)))

    def clear(self) -> None:
        """Forget the runs, and give their room on disk back."""
        self.runs = []
        self.file.seek(0)
        self.file.truncate()


@dataclass(slots=True, eq=False)
class _Run:
    """A sorted run: blocks of `spacing` rows, the last row of each known."""

    file: BinaryIO
    #: The number of its first row in the file.
    start: int
    rows: int
    spacing: int
    samples: Elements
    _read: int = 0
    _rest: Elements | None = None

    def weighed_samples(self) -> Elements:
        """Each with the number of rows that it stands for behind it."""
        weights = np.full((len(self.samples), 1), self.spacing, dtype=np.int64)
        return np.hstack([self.samples, weights.view(np.uint8)])

    def read_up_to(self, bound: bytes) -> Elements:
        """The rows up to `bound` that were not given before."""
        blocks = min(rows_up_to(self.samples, bound) + 1, len(self.samples))
        stop = min(blocks * self.spacing, self.rows)
        width = self.samples.shape[1]
        have = self._rest
        if stop > self._read:
            self.file.seek((self.start + self._read) * width)
            more = read_rows(self.file, stop - self._read, width)
            have = more if have is None or not len(have) else np.concatenate([have, more])
            self._read = stop
        assert have is not None
        count = rows_up_to(have, bound)
        self._rest = have[count:].copy()
        return have[:count]
