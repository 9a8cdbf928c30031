"""Features as a model takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def encoded_bytes(rows: int, columns: int) -> int:
    """What features take."""
    return 4 * rows * columns


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Features:
    """Row `i` of both arrays is one person. Each is C-contiguous, and may have no columns."""

    #: `(n, k)`, each between 0 and 1.
    numeric: npt.NDArray[np.float32]
    #: `(n, c)`, each below its column's cardinality.
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
        """These rows, not copied."""
        return Features(self.numeric[start:stop], self.categories[start:stop])

    def take(self, rows: npt.NDArray[np.int64]) -> Features:
        """These rows in this order, copied; a row may come more than once."""
        return Features(self.numeric.take(rows, axis=0), self.categories.take(rows, axis=0))
