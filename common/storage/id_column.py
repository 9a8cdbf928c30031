"""A column of IDs as one byte buffer with offsets, without a Python object per ID."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa


class Ids(Protocol):
    """IDs in row order, in memory or on disk."""

    def __len__(self) -> int: ...

    def batches(self, rows: int) -> Iterator[IdColumn]:
        """Iterate over all IDs, `rows` at a time; the last batch may be smaller."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IdColumn:
    """A column in which ID `i` is `data[offsets[i]:offsets[i + 1]]`: the exact bytes to hash."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def from_bytes(cls, ids: Iterable[bytes]) -> Self:
        """Create a column from Python objects; for small columns."""
        values = list(ids)
        offsets = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        return cls(np.frombuffer(b"".join(values), dtype=np.uint8), offsets)

    @classmethod
    def from_arrow(cls, texts: pa.LargeStringArray) -> Self:
        """Wrap an Arrow array without nulls; the bytes are shared."""
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        return cls(np.frombuffer(data, dtype=np.uint8), bounds)

    @classmethod
    def joined(cls, parts: list[IdColumn]) -> Self:
        """Concatenate columns into a new one; `parts` is empty afterwards.

        Each part is released after it is copied, so that the data is not in memory twice.
        """
        offsets = np.zeros(sum(map(len, parts)) + 1, dtype=np.int64)
        data = np.empty(sum(int(part.offsets[-1] - part.offsets[0]) for part in parts), np.uint8)
        row = 0
        for part in _emptied(parts):
            first, last, start = part.offsets[0], part.offsets[-1], offsets[row]
            data[start : start + last - first] = part.data[first:last]
            offsets[row + 1 : row + 1 + len(part)] = part.offsets[1:] - first + start
            row += len(part)
        return cls(data, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        data = self.data[first:last].tobytes()
        bounds = (self.offsets - first).tolist()
        return (data[start:end] for start, end in pairwise(bounds))

    def at(self, row: int) -> bytes:
        """Return the ID of one row."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __repr__(self) -> str:
        return f"IdColumn({len(self)} IDs)"

    def slice(self, start: int, stop: int) -> IdColumn:
        """Return the IDs from `start` to before `stop`; they share the buffer."""
        return IdColumn(self.data, self.offsets[start : stop + 1])

    def batches(self, rows: int) -> Iterator[IdColumn]:
        """Iterate over all IDs, `rows` at a time; the batches share the buffer."""
        starts = range(0, len(self), rows)
        return (self.slice(start, min(start + rows, len(self))) for start in starts)

    def take(self, rows: npt.NDArray[np.int64]) -> IdColumn:
        """Copy the IDs of these rows, in this order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        moved = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return IdColumn(self.data[np.arange(offsets[-1]) + moved], offsets)


def packed_ids(columns: Sequence[IdColumn]) -> list[memoryview]:
    """Serialise columns: the lengths of all IDs, then their bytes."""
    lengths = [np.diff(ids.offsets).astype("<u4").data for ids in columns]
    return lengths + [ids.data[ids.offsets[0] : ids.offsets[-1]].data for ids in columns]


def unpacked_ids(data: bytes | memoryview, count: int) -> IdColumn:
    """Read `count` packed IDs into one column, which shares the bytes."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(data, dtype="<u4", count=count), out=offsets[1:])
    return IdColumn(np.frombuffer(data, dtype=np.uint8, offset=4 * count), offsets)


def _emptied(parts: list[IdColumn]) -> Iterator[IdColumn]:
    parts.reverse()
    while parts:
        yield parts.pop()


def quick_digests(ids: IdColumn) -> npt.NDArray[np.uint64]:
    """Return a fast 64-bit hash per ID. Not cryptographic: do not use it for secrets."""
    digests = np.empty(len(ids), dtype=np.uint64)
    for start in range(0, len(ids), _DIGEST_ROWS):
        rows = slice(start, start + _DIGEST_ROWS)
        digests[rows] = _chunk_digests(ids.data, ids.offsets[start : rows.stop + 1])
    return digests


#: Small enough that the arrays of a chunk stay in the cache and malloc reuses their memory.
_DIGEST_ROWS = 1 << 13
#: Masks that keep the first `i` bytes of a word.
_FIRST_BYTES = np.array([(1 << 8 * i) - 1 for i in range(9)], dtype=np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def _chunk_digests(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(8, dtype=np.uint8)])
    # The eight bytes that start at each position: one word per position.
    words = np.ndarray(len(padded) - 7, dtype="<u8", buffer=padded, strides=(1,))
    left = np.diff(offsets)
    position = offsets[:-1] - offsets[0]
    digests = left.astype(np.uint64) * _ODD  # spread out, so that a length never equals a word
    rows = np.arange(len(left))
    while len(rows):
        mixed = digests[rows] ^ (words[position] & _FIRST_BYTES[np.minimum(left, 8)])
        mixed *= _ODD
        mixed ^= mixed >> _HALF
        digests[rows] = mixed
        longer = left > 8
        rows, position, left = rows[longer], position[longer] + 8, left[longer] - 8
    return digests
