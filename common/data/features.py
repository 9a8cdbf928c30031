"""Encoded features, in the form that models take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def encoded_bytes(rows: int, columns: int) -> int:
    """Return the memory that features take, in bytes."""
    return 4 * rows * columns


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Features:
    """Encoded rows: row `i` of both C-contiguous arrays is one person. Either may be empty."""

    #: `(n, k)`, between 0 and 1.
    numeric: npt.NDArray[np.float32]
    #: `(n, c)`, of categories and bins, each index less than the cardinality of its column.
    categories: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        assert self.numeric.dtype == np.float32
        assert self.categories.dtype == np.int32
        assert self.numeric.ndim == self.categories.ndim == 2
        assert len(self.numeric) == len(self.categories)
        assert self.numeric.flags.c_contiguous
        assert self.categories.flags.c_contiguous

    def __len__(self) -> int:
        return len(self.numeric)

    def __repr__(self) -> str:
        numeric, categorical = self.numeric.shape[1], self.categories.shape[1]
        return f"Features({len(self)} rows, {numeric} numeric, {categorical} categorical)"

    def slice(self, start: int, stop: int) -> Features:
        """Return a view of the rows from `start` to `stop`."""
        return Features(self.numeric[start:stop], self.categories[start:stop])

    def take(self, rows: npt.NDArray[np.int64]) -> Features:
        """Copy these rows in this order; rows may be repeated."""
        return Features(self.numeric.take(rows, axis=0), self.categories.take(rows, axis=0))
