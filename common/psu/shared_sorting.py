"""A sort by all branches of a party together: each gives what it has, and gets its own range."""

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

#: Bytes that are cut into ranges at once, and that are fetched at once, about.
_CUT_BYTES = 1 << 21
_FETCH_BYTES = 1 << 20

#: Parts that are fetched before they are wanted.
_AHEAD = 2


class SetSorter(Protocol):
    """Takes rows in any order; gives those of our range sorted, once."""

    def add(self, rows: Elements) -> None:
        """Take more rows, of any range."""
        ...

    def complete(self) -> int:
        """No more will be added, here; how many rows are in our range, once no sibling adds any."""
        ...

    def blocks(self) -> Iterator[Elements]:
        """All rows of our range in ascending order, after `complete`."""
        ...


class Scatter:
    """Rows for all ranges, in a scratch file, from which each range can be read."""

    def __init__(self, file: BinaryIO, width: int, cuts: Cuts) -> None:
        self._file = file
        self._width = width
        self._cuts = cuts
        self._waiting: list[Elements] = []
        self._waiting_bytes = 0
        #: For each piece: where its ranges begin, as row numbers in the file, and where it ends.
        self._bounds: list[npt.NDArray[np.int64]] = []
        self._written = 0
        self._lock = Lock()

    def add(self, rows: Elements) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _CUT_BYTES:
            self._write()

    def counts(self) -> list[int]:
        """Rows of each range, after the last was added."""
        self._write()
        sizes = np.zeros(len(self._cuts) + 1, dtype=np.int64)
        for bounds in self._bounds:
            sizes += np.diff(bounds)
        return [int(size) for size in sizes]

    def part(self, owner: int, start: int) -> tuple[int, bytes]:
        """Rows of the range of `owner` from piece `start` on; and the piece to go on from, or 0."""
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
    """A sorter of what all partitions add; each gets its own range.

    Args:
        partitions: all of them do the same, under the same label.
        label: of this sorting.
        storage: for what waits to be fetched.
        width: bytes of a row.
        cuts: of the ranges.
        make_sorter: of our range, for about so many rows.
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
        for rows in prefetched(self.partitions.fetch(self.label, self.width), _AHEAD):
            self.sorter.add(rows)
        return self.sorter.complete()

    def blocks(self) -> Iterator[Elements]:
        assert self.sorter is not None, "not complete"
        return self.sorter.blocks()
