"""The coordinates of the aggregate: one per frequent category of a column of the passive party."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Categories = npt.NDArray[np.int32]

#: The most coordinates. With more categories, the rarest ones of all columns are merged as well.
MAX_COORDINATES = 65_536

#: Rows that are counted or looked up at once, which bounds the memory.
_ROWS = 65_536


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coordinates:
    """Maps each category of each column to a coordinate; rare categories of a column share one."""

    #: The coordinate of each category, for all columns one after the other.
    of_category: npt.NDArray[np.int32]
    #: The place in `of_category` at which each column starts.
    starts: npt.NDArray[np.int64]
    count: int

    @classmethod
    def of_table(cls, categories: Categories, cardinalities: Sequence[int], min_count: int) -> Self:
        """Merge categories with fewer than `min_count` rows of a table.

        Args:
            categories: (rows, columns), each below the cardinality of its column.
            cardinalities: number of categories of each column.
            min_count: at least 1.
        """
        starts = np.cumsum([0, *cardinalities])
        counts = np.zeros(starts[-1], dtype=np.int64)
        for part in _parts(categories):
            counts += np.bincount((part + starts[:-1]).ravel(), minlength=starts[-1])
        frequent = counts >= max(min_count, 1)
        room = MAX_COORDINATES - len(cardinalities)
        if frequent.sum() > room:
            least = np.partition(counts[frequent], -room)[-room]
            frequent &= counts > least
        of_category = np.empty(starts[-1], dtype=np.int32)
        count = 0
        for start, stop in pairwise(starts):
            is_own = frequent[start:stop]
            own = int(is_own.sum())
            of_category[start:stop] = count + own  # of the rare ones
            of_category[start:stop][is_own] = count + np.arange(own)
            count += own + int(own < stop - start)
        return cls(of_category, starts[:-1], count)

    @property
    def columns(self) -> int:
        """The number of columns; each row has one coordinate of each."""
        return len(self.starts)

    def of(self, categories: Categories) -> npt.NDArray[np.int32]:
        """Return the coordinates of rows: (rows, columns)."""
        found: npt.NDArray[np.int32] = self.of_category[categories + self.starts]
        return found


def _parts(categories: Categories) -> list[Categories]:
    return [categories[at : at + _ROWS] for at in range(0, len(categories), _ROWS)]
