"""Set operations on streams of sorted blocks, with a few blocks in memory at a time.

A stream is an iterator of arrays that together form one sorted array. `storage/element_sets.py` has
the same operations on whole arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.storage.element_sets import (
    difference,
    intersection_size,
    is_strictly_increasing,
    prefixes,
    rows_up_to,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.storage.elements import Elements


def in_step(
    first: Iterable[Elements], second: Iterable[Elements], width: int
) -> Iterator[tuple[Elements, Elements]]:
    """Cut two streams at the same rows: each pair holds all rows of both up to some row.

    Rows are compared by their first `width` bytes, in which the rows of one stream are distinct.
    Either part of a pair can be empty.
    """
    a, b = _Cursor(first), _Cursor(second)
    while a.block is not None and b.block is not None:
        bound = min(_last(a.block, width), _last(b.block, width))
        yield a.take(rows_up_to(a.block, bound)), b.take(rows_up_to(b.block, bound))
    while a.block is not None:
        yield a.take(len(a.block)), _EMPTY
    while b.block is not None:
        yield _EMPTY, b.take(len(b.block))


def union_of(
    first: Iterable[Elements], second: Iterable[Elements], width: int
) -> Iterator[Elements]:
    """Yield the union of two sorted streams of distinct rows, as one such stream."""
    for a, b in in_step(first, second, width):
        if len(a) and len(b):
            yield union(a, b)
        else:
            yield a if len(a) else b


def difference_of(
    first: Iterable[Elements], second: Iterable[Elements], width: int
) -> Iterator[Elements]:
    """Yield the rows of one sorted stream that are not in the other, as a sorted stream."""
    for a, b in in_step(first, second, width):
        if len(a):
            yield difference(a, b) if len(b) else a


def union_size(first: Iterable[Elements], second: Iterable[Elements], width: int) -> int:
    """Return how many rows `union_of` yields."""
    return sum(
        len(a) + len(b) - (intersection_size(a, b) if len(a) and len(b) else 0)
        for a, b in in_step(first, second, width)
    )


def in_chunks(blocks: Iterable[Elements], rows: int) -> Iterator[Elements]:
    """Yield the same rows, `rows` at a time; the last chunk may have fewer."""
    kept: list[Elements] = []
    count = 0
    for block in blocks:
        start = 0
        while len(block) - start >= rows - count:
            stop = start + rows - count
            kept.append(block[start:stop])
            yield kept[0] if len(kept) == 1 else np.concatenate(kept)
            kept, count, start = [], 0, stop
        if start < len(block):
            kept.append(block[start:])
            count += len(block) - start
    if kept:
        yield np.concatenate(kept)


class AscendingCheck:
    """Checks, block by block, that the rows of a stream are strictly increasing.

    The first eight bytes of each row, as a number, must be at least `first` and less than `end`.
    """

    def __init__(self, first: int = 0, end: int = 1 << 64) -> None:
        self._range = range(first, end)
        self._last: Elements | None = None

    def accepts(self, block: Elements) -> bool:
        """Return whether the rows so far, and these, pass the check."""
        if not len(block):
            return True
        joined = block if self._last is None else np.concatenate([self._last, block])
        self._last = block[-1:].copy()
        ends = (int(number) for number in prefixes(block[[0, -1]]))
        return is_strictly_increasing(joined) and all(end in self._range for end in ends)


class _Cursor:
    """A stream and the rest of its current block; None at the end."""

    def __init__(self, stream: Iterable[Elements]) -> None:
        self._stream = iter(stream)
        self.block: Elements | None = None
        self._refill()

    def take(self, count: int) -> Elements:
        """Take the next `count` rows of the current block."""
        assert self.block is not None
        taken, rest = self.block[:count], self.block[count:]
        if len(rest):
            self.block = rest
        else:
            self._refill()
        return taken

    def _refill(self) -> None:
        self.block = next((block for block in self._stream if len(block)), None)


_EMPTY = np.empty((0, 0), dtype=np.uint8)


def _last(block: Elements, width: int) -> bytes:
    return block[-1, :width].tobytes()
