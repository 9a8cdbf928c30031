"""Sort more rows than fit in memory: sorted runs in scratch files, merged range by range.

Evenly spaced samples of every run stay in memory. Together, the samples of all runs determine how
to divide the rows into ranges that fit in memory. Each range is read from all runs and merged at
once, so nothing is done row by row. If all rows fit in memory, they are sorted there.

The samples of a run, and what is read of it beyond a range, take memory too. So the number of runs
is limited: a level with as many runs as can be merged at once is merged into one run of the next
level, which has fewer samples for its size.
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

#: The runs of one level may take up to 1/_LEVELS of the memory before they are merged; there are
#: rarely more than two levels.
_LEVELS = 4


@contextmanager
def sorting(
    storage: Storage,
    width: int,
    memory: int,
    expected: int,
    sort: Callable[[Elements], Elements] = sorted_set,
) -> Iterator[Sorter]:
    """Create a sorter of rows of `width` bytes; its scratch files are deleted after the block.

    Args:
        storage: where to create scratch files, if they are needed.
        width: bytes per row, a multiple of 8.
        memory: bytes of memory that the sorter may use.
        expected: approximate number of rows; 0 if unknown.
        sort: sorts rows in memory, like `sorted_set`.
    """
    with ExitStack() as files:
        yield Sorter(storage, width, rows_in_memory(width, memory), expected, files, sort)


def rows_in_memory(width: int, memory: int) -> int:
    """Return how many rows can be sorted or merged within `memory` bytes."""
    # Merging holds three copies of the rows (as read, concatenated, sorted) and per row a key and
    # an index.
    return max(4, memory // (3 * width + 24))


def rows_on_disk(width: int, memory: int, rows: int) -> int:
    """Return the maximum number of rows in scratch files while `rows` rows are sorted."""
    capacity = longest = rows_in_memory(width, memory)
    while (above := longest * _max_runs(longest, capacity)) < rows:
        longest = above
    # While a level is merged, its rows exist twice: in its runs and in the merged run.
    return rows + (longest if longest > capacity else 0)


def _max_runs(rows: int, capacity: int) -> int:
    """Return how many runs of `rows` rows a level may have before they are merged."""
    # A run has about as many samples as rows between two samples, which may be read ahead of it.
    return max(2, capacity // (2 * _LEVELS * _spacing(rows)))


def _spacing(rows: int) -> int:
    """Return the distance between samples of a run that minimises samples plus rows read ahead."""
    return max(1, isqrt(rows))


class Sorter:
    """Takes rows in any order and returns them sorted, once; duplicates are kept."""

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
        """Add rows."""
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
            if len(rows):  # the buffer is full
                self._write_run()
                self._merge_full_levels()

    def complete(self) -> int:
        """Return the number of rows, once all are added."""
        return self.count

    def blocks(self) -> Iterator[Elements]:
        """Yield all rows in ascending order; the sorter cannot be used again."""
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

    def _merge_full_levels(self) -> None:
        """Merge the runs of each full level into one run of the next level."""
        for number, level in enumerate(self._levels):
            longest = max((run.rows for run in level.runs), default=0)
            if len(level.runs) >= _max_runs(longest, self._capacity):
                self._buffer = None  # merging needs all the memory
                self._level(number + 1).write(self._merged(level.runs), _spacing(level.rows))
                level.clear()

    def _level(self, number: int) -> _Level:
        if number == len(self._levels):
            self._levels.append(_Level(self._files.enter_context(self._storage.scratch())))
        return self._levels[number]

    def _merged(self, runs: list[_Run]) -> Iterator[Elements]:
        """Yield the rows of all runs in order, in blocks that fit in memory."""
        for bound in self._bounds(runs):
            yield merged([run.read_up_to(bound) for run in runs])

    def _bounds(self, runs: list[_Run]) -> Iterator[bytes]:
        """Yield the upper bounds of ranges that fit in memory; the last one is the greatest row."""
        samples = sorted_set(np.concatenate([run.weighted_samples() for run in runs]))
        # The number of rows up to each sample; a run may have up to `spacing` more.
        reach = np.cumsum(samples[:, self._width :].view(np.int64)[:, 0])
        spacings = [run.spacing for run in runs]
        size = max(1, self._capacity - sum(spacings) - max(spacings))
        cuts = np.searchsorted(reach, np.arange(size, reach[-1], size), side="right") - 1
        cuts = np.unique(np.append(cuts[cuts >= 0], len(samples) - 1))
        return (samples[cut, : self._width].tobytes() for cut in cuts)


@dataclass(slots=True, eq=False)
class _Level:
    """Runs of about the same length, consecutive in one scratch file."""

    file: BinaryIO
    runs: list[_Run] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def write(self, blocks: Iterable[Elements], spacing: int) -> None:
        """Append a run of sorted blocks, at least one of which has a row."""
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
        """Delete the runs and free their disk space."""
        self.runs = []
        self.file.seek(0)
        self.file.truncate()


@dataclass(slots=True, eq=False)
class _Run:
    """A sorted run: blocks of `spacing` rows, whose last rows are in memory as samples."""

    file: BinaryIO
    #: Index of its first row in the file.
    start: int
    rows: int
    spacing: int
    samples: Elements
    _read: int = 0
    _rest: Elements | None = None

    def weighted_samples(self) -> Elements:
        """Return the samples, each followed by the number of rows that it represents."""
        weights = np.full((len(self.samples), 1), self.spacing, dtype=np.int64)
        return np.hstack([self.samples, weights.view(np.uint8)])

    def read_up_to(self, bound: bytes) -> Elements:
        """Return the rows up to `bound` that were not returned before."""
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
