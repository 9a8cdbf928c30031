"""How a batch is split into micro-batches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def micro_batches(rows: int, size: int) -> Iterator[slice]:
    """Split rows into slices of `size`; the last may be smaller."""
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def pipelined_micro_batches(rows: int, size: int) -> Iterator[slice]:
    """Split a training batch into slices of `size`, the first of half that size.

    While one party works on the first or the last slice, the other has nothing to do, so these are
    small: the last also has half the size if `size` divides `rows`.
    """
    if rows <= size:
        return micro_batches(rows, size)
    starts = [0, *range(max(1, size // 2), rows, size)]
    return (slice(start, stop) for start, stop in pairwise([*starts, rows]))
