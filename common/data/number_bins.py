"""Quantile bins of numeric columns, fitted to the training table.

A model of one pass learns a number's effect faster from bins, each with weights of its own, than
from the scaled number alone. Missing values have a bin of their own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator

from florist.common.settings.section import StrictModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

#: Quantiles are those of all rows up to this number, otherwise of a sample of at least half as
#: many. A sampled quantile is wrong by less than a percent of the rows.
MAX_ROWS = 1 << 16


class NumberBins(StrictModel):
    """The bins of a numeric column. Index 0 is for missing values, and the others ascend."""

    column: str
    #: The smallest value of each bin except the first, strictly ascending.
    edges: list[float] = Field(max_length=1 << 16)

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("edges must ascend")
        return self

    @property
    def cardinality(self) -> int:
        """The number of indices, including 0 for missing values."""
        return len(self.edges) + 2

    def indices(self, values: Floats) -> npt.NDArray[np.int32]:
        """Return the bin of each value; NaN is a missing one."""
        found = np.searchsorted(self.edges, values, side="right").astype(np.int32) + np.int32(1)
        found[np.isnan(values)] = 0
        return found


def fit_bins(column: str, values: Floats, bins: int) -> NumberBins:
    """Return bins with about as many values each; one per distinct value if there are few.

    Args:
        column: the name of the column.
        values: its values in any order, NaN where missing.
        bins: the largest number of bins, besides the one for missing values.
    """
    present, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(present) <= bins:
        edges = present[1:]
    else:
        # Edge `k` is the smallest value with at least `k / bins` of all values below it.
        up_to_each = np.cumsum(counts)
        wanted = np.arange(1, bins) * up_to_each[-1]
        places = np.unique(np.searchsorted(up_to_each * bins, wanted) + 1)
        edges = present[places[places < len(present)]]
    return NumberBins(column=column, edges=(edges + 0.0).tolist())


class RowSample:
    """A sample of the values of several columns, from the same rows of a table read in parts.

    All rows are kept up to `limit`; of more rows, a sample. Whether a row is in the sample depends
    on its number only, so that the parts make no difference.
    """

    def __init__(self, limit: int = MAX_ROWS) -> None:
        self._limit = limit
        self._seen = 0
        #: Rows whose hash, shifted right by 64 minus this many bits, is 0 are kept.
        self._bits = 0
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._values: dict[str, list[Floats]] = {}

    def add(self, rows: int, columns: Mapping[str, Floats]) -> None:
        """Add the next rows of a table: the values of each column, which are the same each time."""
        numbers = np.arange(self._seen, self._seen + rows, dtype=np.uint64)
        self._seen += rows
        hashes = _hashes(numbers)
        kept = _starts_with_zeros(hashes, self._bits)
        self._hashes.append(hashes[kept])
        for column, values in columns.items():
            self._values.setdefault(column, []).append(values[kept])
        while sum(map(len, self._hashes)) > self._limit:
            self._halve()

    def _halve(self) -> None:
        self._bits += 1
        hashes = np.concatenate(self._hashes)
        kept = _starts_with_zeros(hashes, self._bits)
        self._hashes = [hashes[kept]]
        self._values = {
            column: [np.concatenate(parts)[kept]] for column, parts in self._values.items()
        }

    def forget(self, columns: Iterable[str]) -> None:
        """Discard the values of these columns."""
        for column in columns:
            self._values.pop(column, None)

    def values(self, column: str) -> Floats:
        """Return the sampled values of a column."""
        return np.concatenate(self._values[column])


def _starts_with_zeros(hashes: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.bool_]:
    if not bits:
        return np.ones(len(hashes), dtype=np.bool_)
    return np.asarray(hashes >> np.uint64(64 - bits) == 0)


def _hashes(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return hashes of numbers: the generator splitmix64, which is the same everywhere."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
