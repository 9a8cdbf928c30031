"""A distributed sort by all partitions of a party: each ends up with its own range of values."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np

from florist.common.core.prefetch import prefetched
from florist.common.storage.element_sets import prefixes
from florist.common.storage.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from florist.common.psu.partitions import Cuts, Partitions
    from florist.common.storage.elements import Elements
    from florist.common.storage.external_sorter import Sorter
    from florist.common.storage.files import Storage

#: Approximate bytes that are split into ranges at once, and that are fetched at once.
_CUT_BYTES = 1 << 21
_FETCH_BYTES = 1 << 20

#: Parts that are fetched ahead.
_PREFETCH = 2


class SetSorter(Protocol):
    """Takes rows in any order; yields those of our range sorted, once."""

    def add(self, rows: Elements) -> None:
        """Add rows, of any range."""
        ...

    def complete(self) -> int:
        """End adding rows; wait for all partitions and return how many are in our range."""
        ...

    def blocks(self) -> Iterator[Elements]:
        """Yield all rows of our range in ascending order; call `complete` first."""
        ...


class Scatter:
    """Rows for all ranges, in a temporary file from which each range can be read."""

    def __init__(self, file: BinaryIO, width: int, cuts: Cuts) -> None:
        self._file = file
        self._width = width
        self._cuts = cuts
        self._waiting: list[Elements] = []
        self._waiting_bytes = 0
        #: For each piece: the first row in the file of each range, and the end of the piece.
        self._bounds: list[npt.NDArray[np.int64]] = []
        self._written = 0
        self._lock = Lock()

    def add(self, rows: Elements) -> None:
        """Add rows, of any range."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _CUT_BYTES:
            self._write()

    def counts(self) -> list[int]:
        """Return how many rows each range has, after the last was added."""
        self._write()
        sizes = np.zeros(len(self._cuts) + 1, dtype=np.int64)
        for bounds in self._bounds:
            sizes += np.diff(bounds)
        return [int(size) for size in sizes]

    def part(self, owner: int, start: int) -> tuple[int, bytes]:
        """Return the next piece to read, or 0, and the rows of `owner` from piece `start` on."""
        found: list[bytes] = []
        size = 0
        for piece in range(start, len(self._bounds)):
            if size >= _FETCH_BYTES:
                return piece, b"".join(found)
            first, last = self._bounds[piece][owner : owner + 2].tolist()
            with self._lock:
                self._file.seek(first * self._width)
                found.append(read_rows(self._file, last - first, self._width).tobytes())
            size += len(found[-1])
        return 0, b"".join(found)

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        owners = np.searchsorted(self._cuts, prefixes(rows), side="right").astype(np.uint16)
        self._file.write(rows.take(np.argsort(owners, kind="stable"), axis=0).data)
        sizes = np.bincount(owners, minlength=len(self._cuts) + 1)
        self._bounds.append(self._written + np.concatenate([[0], np.cumsum(sizes)]))
        self._written += len(rows)
        self._waiting, self._waiting_bytes = [], 0


@contextmanager
def sorting_together(
    partitions: Partitions,
    label: str,
    storage: Storage,
    width: int,
    cuts: Cuts,
    make_sorter: Callable[[int], AbstractContextManager[Sorter]],
) -> Iterator[SetSorter]:
    """Return a sorter of the rows that all partitions add; each gets its own range.

    Args:
        partitions: all of which call this with the same label.
        label: identifies this sort.
        storage: for the rows that other partitions fetch.
        width: bytes of a row.
        cuts: the bounds of the ranges.
        make_sorter: returns a sorter for about this many rows of our range.
    """
    with storage.scratch() as file, ExitStack() as stack:
        yield _SharedSorter(
            partitions, label, width, Scatter(file, width, cuts), make_sorter, stack
        )
        partitions.all_to_all(f"{label}: fetched", [0] * partitions.count)


@dataclass(slots=True, eq=False)
class _SharedSorter:
    partitions: Partitions
    label: str
    width: int
    scatter: Scatter
    make_sorter: Callable[[int], AbstractContextManager[Sorter]]
    stack: ExitStack
    sorter: Sorter | None = None

    def add(self, rows: Elements) -> None:
        self.scatter.add(rows)

    def complete(self) -> int:
        counts = self.scatter.counts()
        self.stack.enter_context(self.partitions.offer(self.label, self.scatter))
        expected = sum(self.partitions.all_to_all(self.label, counts))
        self.sorter = self.stack.enter_context(self.make_sorter(expected))
        for rows in prefetched(self.partitions.fetch(self.label, self.width), _PREFETCH):
            self.sorter.add(rows)
        return self.sorter.complete()

    def blocks(self) -> Iterator[Elements]:
        assert self.sorter is not None, "not complete"
        return self.sorter.blocks()
