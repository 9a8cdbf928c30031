"""Which UIDs of the union belong to a party, and their rows in its table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Membership:
    """The row of the party's table for each rank in the union; -1 where it lacks the UID."""

    row_of_rank: npt.NDArray[np.int64]

    @classmethod
    def of(cls, rank_of_row: npt.NDArray[np.int64], union_size: int) -> Membership:
        """Build it from the rank of each row of the table."""
        rows = np.full(union_size, -1, dtype=np.int64)
        rows[rank_of_row] = np.arange(len(rank_of_row))
        return cls(rows)

    @property
    def rank_of_row(self) -> npt.NDArray[np.int64]:
        """The rank of each row of the party's table."""
        own = np.flatnonzero(self.row_of_rank >= 0)
        ranks = np.empty(len(own), dtype=np.int64)
        ranks[self.row_of_rank[own]] = own
        return ranks

    def rows(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row of each rank; -1 where the party lacks the UID."""
        return self.row_of_rank[ranks]
