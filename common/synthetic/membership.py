"""Which UIDs of the union belong to a party, and their rows in its table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Membership:
    """Row of our table for each rank in the union; -1 where the UID is not ours."""

    row_of_rank: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rank_of_row: npt.NDArray[np.int64], union_size: int) -> Membership:
        rows = np.full(union_size, -1, dtype=np.int64)
        rows[rank_of_row] = np.arange(len(rank_of_row))
        return cls(rows)

    def rows(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.row_of_rank[ranks]
