"""Sets of elements as sorted arrays: each row is a multiple of 8 bytes, compared byte by byte.

The first eight bytes, as one number, decide almost every comparison; rows with equal prefixes are
compared in full. So results are correct for any rows, and fast for the rows of an honest peer.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.storage.elements import Elements


#: Length of a prefix. Rows of this width are compared as numbers.
_PREFIX_BYTES = 8


def sorted_set(elements: Elements) -> Elements:
    """Return the rows in ascending order, which reveals nothing about their original order.

    Duplicates are kept; `is_strictly_increasing` detects them.
    """
    if elements.shape[1] == _PREFIX_BYTES:
        ordered = np.sort(prefixes(elements)).astype(">u8")
        return ordered.view(np.uint8).reshape(elements.shape)
    return _repaired(_rows(elements, np.argsort(prefixes(elements))))


def is_strictly_increasing(elements: Elements) -> bool:
    """Whether the rows are sorted and unique."""
    numbers = prefixes(elements)
    if (numbers[1:] < numbers[:-1]).any():
        return False
    ties = _ties(numbers)
    return bool(_is_less(_rows(elements, ties - 1), _rows(elements, ties)).all())


def merged(parts: Sequence[Elements]) -> Elements:
    """Merge several sorted arrays into one; duplicates are kept."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate(parts)
    # numpy's stable sort merges sorted runs.
    return _repaired(_rows(rows, np.argsort(prefixes(rows), kind="stable")))


def rows_up_to(elements: Elements, bound: bytes) -> int:
    """Count the rows of a sorted array that are at most `bound`, comparing `len(bound)` bytes."""
    # This reads few rows; numpy's search would first copy all rows that are wider than `bound`.
    return bisect_right(
        range(len(elements)), bound, key=lambda row: elements[row, : len(bound)].tobytes()
    )


def union(a: Elements, b: Elements) -> Elements:
    """Return the union of two strictly increasing arrays."""
    both = np.concatenate((a, b))
    # numpy's stable sort merges two sorted runs in a single pass.
    both = _rows(both, np.argsort(prefixes(both), kind="stable"))
    # Rows that are in both are now adjacent, unless different rows share a prefix.
    return _without_repeats(_repaired(_without_repeats(both)))


def difference(a: Elements, b: Elements) -> Elements:
    """Return the rows of one strictly increasing array that are not in another."""
    return _rows(a, np.flatnonzero(find_rows(b, a) < 0))


def intersection_size(a: Elements, b: Elements) -> int:
    """Count the rows that two strictly increasing arrays have in common."""
    return int(np.count_nonzero(find_rows(a, b) >= 0))


def find_rows(universe: Elements, elements: Elements) -> npt.NDArray[np.int64]:
    """Return the index of each element in the strictly increasing `universe`; -1 if missing."""
    found = np.full(len(elements), -1, dtype=np.int64)
    if len(universe) == 0:
        return found
    known, wanted = prefixes(universe), prefixes(elements)
    # Searching in ascending order is cache-friendly.
    if (wanted[1:] >= wanted[:-1]).all():
        nearest = np.searchsorted(known, wanted)
    else:
        order = np.argsort(wanted)
        nearest = np.empty(len(elements), dtype=np.int64)
        nearest[order] = np.searchsorted(known, wanted[order])
    candidates = np.flatnonzero(known.take(nearest, mode="clip") == wanted)

    at = nearest[candidates]
    same = _is_equal(_rows(universe, at), _rows(elements, candidates))
    found[candidates[same]] = at[same]
    # Rows that share their prefix with other rows need a search on whole rows.
    rest = candidates[~same]
    wanted_rows = _rows(elements, rest)
    at = np.searchsorted(_whole(universe), _whole(wanted_rows))
    at = np.minimum(at, len(universe) - 1)
    same = _is_equal(_rows(universe, at), wanted_rows)
    found[rest[same]] = at[same]
    return found


def prefixes(elements: Elements) -> npt.NDArray[np.uint64]:
    """Return the first eight bytes of each row as a number; numbers sort like the bytes."""
    return np.ascontiguousarray(elements).view(">u8")[:, 0].astype(np.uint64)


def _rows(elements: Elements, indices: npt.NDArray[np.int64]) -> Elements:
    return elements.take(indices, axis=0)  # several times faster than elements[indices]


def _whole(elements: Elements) -> npt.NDArray[np.void]:
    """View each row as one item. numpy compares `V` items as bytes; `S` drops trailing zeros."""
    return np.ascontiguousarray(elements).view(f"V{elements.shape[1]}")[:, 0]


def _ties(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the indices of rows with the same prefix as the row before."""
    return 1 + np.flatnonzero(numbers[1:] == numbers[:-1])


def _repaired(elements: Elements) -> Elements:
    """Sort in full, in place, what is already sorted by prefixes."""
    ties = _ties(prefixes(elements))
    if len(ties):
        # Rows with different prefixes keep their order, so all ties can be sorted together.
        tied = np.zeros(len(elements), dtype=bool)
        tied[ties - 1] = tied[ties] = True
        rows = _whole(elements)
        rows[tied] = np.sort(rows[tied])
    return elements


def _without_repeats(elements: Elements) -> Elements:
    """Remove rows that equal the row before."""
    ties = _ties(prefixes(elements))
    repeats = ties[_is_equal(_rows(elements, ties - 1), _rows(elements, ties))]
    return np.delete(elements, repeats, axis=0) if len(repeats) else elements


def _is_equal(a: Elements, b: Elements) -> npt.NDArray[np.bool_]:
    """Compare row by row."""
    same: npt.NDArray[np.bool_] = (a.view(np.uint64) == b.view(np.uint64)).all(axis=1)
    return same


def _is_less(a: Elements, b: Elements) -> npt.NDArray[np.bool_]:
    """Compare row by row; equal rows are not less."""
    first = (a != b).argmax(axis=1)[:, None]
    less = np.take_along_axis(a, first, axis=1) < np.take_along_axis(b, first, axis=1)
    return less[:, 0]
