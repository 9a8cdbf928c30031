"""Sets of elements as sorted arrays: rows, of a multiple of 8 bytes, in the order of their bytes.

The first eight bytes, as one number, decide almost every comparison; rows that agree in these are
compared in full. So any rows are right, and those of an honest peer are fast.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.storage.elements import Elements


#: Rows of no more are numbers.
_PREFIX_BYTES = 8


def sorted_set(elements: Elements) -> Elements:
    """The rows in ascending order: a shuffle of the whole set, for it keeps nothing of their order.

    Duplicates stay; `is_strictly_increasing` tells.
    """
    if elements.shape[1] == _PREFIX_BYTES:
        ordered = np.sort(prefixes(elements)).astype(">u8")
        return ordered.view(np.uint8).reshape(elements.shape)
    return _repaired(_rows(elements, np.argsort(prefixes(elements))))


def is_strictly_increasing(elements: Elements) -> bool:
    """Whether the rows are sorted and all different."""
    numbers = prefixes(elements)
    if (numbers[1:] < numbers[:-1]).any():
        return False
    ties = _ties(numbers)
    return bool(_is_less(_rows(elements, ties - 1), _rows(elements, ties)).all())


def merged(parts: Sequence[Elements]) -> Elements:
    """Several sorted arrays as one; duplicates stay."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate(parts)
    # The stable sort is the one that merges sorted runs.
    return _repaired(_rows(rows, np.argsort(prefixes(rows), kind="stable")))


def rows_up_to(elements: Elements, bound: bytes) -> int:
    """How many rows of a sorted array are at most `bound`, by as many bytes as it has."""
    # Few rows are looked at; those of a wider array would all be copied to be searched by numpy.
    return bisect_right(
        range(len(elements)), bound, key=lambda row: elements[row, : len(bound)].tobytes()
    )


def union(a: Elements, b: Elements) -> Elements:
    """Of two strictly increasing arrays, as one."""
    both = np.concatenate((a, b))
    # The stable sort is the one that merges two sorted runs in a single pass.
    both = _rows(both, np.argsort(prefixes(both), kind="stable"))
    # Rows that are in both now follow each other, save where different rows share a prefix.
    return _without_repeats(_repaired(_without_repeats(both)))


def intersection_size(a: Elements, b: Elements) -> int:
    """How many rows two strictly increasing arrays share."""
    return int(np.count_nonzero(positions(a, b) >= 0))


def positions(universe: Elements, elements: Elements) -> npt.NDArray[np.int64]:
    """Where in `universe`, strictly increasing, each row of `elements` is; -1 where it is not."""
    found = np.full(len(elements), -1, dtype=np.int64)
    if len(universe) == 0:
        return found
    known, wanted = prefixes(universe), prefixes(elements)
    # Looking them up in ascending order keeps the search within the cache.
    order = np.argsort(wanted)
    nearest = np.empty(len(elements), dtype=np.int64)
    nearest[order] = np.searchsorted(known, wanted[order])
    candidates = np.flatnonzero(known.take(nearest, mode="clip") == wanted)

    at = nearest[candidates]
    same = _is_equal(_rows(universe, at), _rows(elements, candidates))
    found[candidates[same]] = at[same]
    # Rows that share a prefix with others need the search on whole rows.
    rest = candidates[~same]
    wanted_rows = _rows(elements, rest)
    at = np.searchsorted(_whole(universe), _whole(wanted_rows))
    at = np.minimum(at, len(universe) - 1)
    same = _is_equal(_rows(universe, at), wanted_rows)
    found[rest[same]] = at[same]
    return found


def prefixes(elements: Elements) -> npt.NDArray[np.uint64]:
    """Each row's first eight bytes as a number in the same order."""
    return np.ascontiguousarray(elements).view(">u8")[:, 0].astype(np.uint64)


def _rows(elements: Elements, indices: npt.NDArray[np.int64]) -> Elements:
    return elements.take(indices, axis=0)  # several times faster than elements[indices]


def _whole(elements: Elements) -> npt.NDArray[np.void]:
    """Each row as one item. numpy compares `V` items as bytes; `S` would drop trailing zeros."""
    return np.ascontiguousarray(elements).view(f"V{elements.shape[1]}")[:, 0]


def _ties(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The rows that have the prefix of the row before."""
    return 1 + np.flatnonzero(numbers[1:] == numbers[:-1])


def _repaired(elements: Elements) -> Elements:
    """What is sorted by its prefixes, sorted in full, in place."""
    ties = _ties(prefixes(elements))
    if len(ties):
        # Rows of different prefixes keep their order, so all ties can be sorted together.
        tied = np.zeros(len(elements), dtype=bool)
        tied[ties - 1] = tied[ties] = True
        rows = _whole(elements)
        rows[tied] = np.sort(rows[tied])
    return elements


def _without_repeats(elements: Elements) -> Elements:
    """Drop rows that equal the row before."""
    ties = _ties(prefixes(elements))
    repeats = ties[_is_equal(_rows(elements, ties - 1), _rows(elements, ties))]
    return np.delete(elements, repeats, axis=0) if len(repeats) else elements


def _is_equal(a: Elements, b: Elements) -> npt.NDArray[np.bool_]:
    """Row by row."""
    same: npt.NDArray[np.bool_] = (a.view(np.uint64) == b.view(np.uint64)).all(axis=1)
    return same


def _is_less(a: Elements, b: Elements) -> npt.NDArray[np.bool_]:
    """Row by row."""
    first = (a != b).argmax(axis=1)[:, None]
    less = np.take_along_axis(a, first, axis=1) < np.take_along_axis(b, first, axis=1)
    return less[:, 0]
