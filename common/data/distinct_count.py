"""Estimate the number of different values in a stream, in a few kilobytes (HyperLogLog)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from florist.common.storage.id_column import IdColumn, quick_digests

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

_BITS = 12
_REGISTERS = 1 << _BITS
#: The standard error of the estimate, as a share of the number.
STANDARD_ERROR = 1.04 / math.sqrt(_REGISTERS)


class DistinctCount:
    """Estimates how many different texts were added."""

    def __init__(self) -> None:
        self._ranks = np.zeros(_REGISTERS, dtype=np.uint8)

    def add(self, texts: pa.LargeStringArray) -> None:
        """Add texts, without nulls; repeated ones make no difference."""
        if not len(texts):
            return
        hashes = _mixed(quick_digests(IdColumn.from_arrow(texts)))
        registers = (hashes >> np.uint64(64 - _BITS)).astype(np.int64)
        # The place of the first 1 among the other bits; the last bit is set to end the search.
        rest = (hashes << np.uint64(_BITS)) | np.uint64(1 << (_BITS - 1))
        ranks = (64 - np.frexp(rest.astype(np.float64))[1] + 1).astype(np.uint8)
        np.maximum.at(self._ranks, registers, ranks)

    def estimate(self) -> int:
        """Return the estimate, with a relative standard error of `STANDARD_ERROR`."""
        raw = (
            0.7213
            / (1 + 1.079 / _REGISTERS)
            * _REGISTERS**2
            / np.sum(2.0 ** -self._ranks.astype(float))
        )
        empty = int(np.count_nonzero(self._ranks == 0))
        if raw <= 2.5 * _REGISTERS and empty:
            return round(_REGISTERS * math.log(_REGISTERS / empty))
        return round(float(raw))


def _mixed(digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread the digests over all 64 bits: the last steps of splitmix64."""
    mixed = digests
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
