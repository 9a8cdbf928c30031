"""How often each category of a column occurs, for a table that is read in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Counts are summed once more than this many are pending, or more than there are categories.
_MAX_PENDING = 1 << 20


class CategoryCounts:
    """How often each category of a column occurs."""

    def __init__(self) -> None:
        #: The counts of all parts except the pending ones.
        self._sums: pa.StructArray | None = None
        self._pending: list[pa.StructArray] = []

    def add(self, values: pa.ChunkedArray) -> None:
        """Count the values of the next part."""
        self._pending.append(values.value_counts())
        distinct = 0 if self._sums is None else len(self._sums)
        if sum(map(len, self._pending)) > max(_MAX_PENDING, distinct):
            self._sums = self.total()
            self._pending = []

    def total(self) -> pa.StructArray:
        """Return the distinct `values` and their `counts`."""
        return sum_counts([*([] if self._sums is None else [self._sums]), *self._pending])


def sum_counts(parts: Sequence[pa.StructArray]) -> pa.StructArray:
    """Add up counts as Arrow's `value_counts` returns them; at least one part."""
    if len(parts) == 1:
        return parts[0]
    counted = pa.table(
        {
            name: pa.chunked_array([part.field(name) for part in parts])
            for name in ("values", "counts")
        }
    )
    summed = counted.group_by("values").aggregate([("counts", "sum")]).combine_chunks()
    return pa.StructArray.from_arrays(
        [summed.column(name).chunk(0) for name in ("values", "counts_sum")],
        names=["values", "counts"],
    )
