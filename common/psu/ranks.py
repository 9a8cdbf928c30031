"""The ranks of a party's own elements in the union: found by a merge join, and stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.core.errors import InternalError, ProtocolViolation
from florist.common.psu.sorted_streams import AscendingCheck, in_chunks, in_step
from florist.common.psu.stored_sets import StoredSet, writing_set
from florist.common.storage.element_sets import find_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements

#: The name of the stored ranks of our elements, in row order.
RANKS = "ranks"

#: Row numbers and ranks are stored big-endian, so that bytes sort as the numbers do.
_NUMBER = ">u8"
ROW_BYTES = RANK_BYTES = 8

#: Ranks that are read at once.
_PART = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class StoredRanks:
    """The rank in `U` of each of the party's elements, dummies included, in row order."""

    stored: StoredSet

    def __len__(self) -> int:
        return len(self.stored)

    def parts(self, count: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the ranks of the first `count` elements, in several arrays."""
        left = count
        for chunk in in_chunks(self.stored.chunks(), _PART):
            if left <= 0:
                return
            yield _numbers(chunk[:left])
            left -= len(chunk)

    def all(self) -> npt.NDArray[np.int64]:
        """Return all ranks in memory."""
        return np.concatenate([np.empty(0, np.int64), *self.parts(len(self))])


def find_ranks(
    work: UnionWork, universe: StoredSet, own: Iterable[Elements], count: int
) -> StoredRanks:
    """Find each own UID in `U`, and store the ranks in row order.

    With several partitions, `universe` is our range of `U`, and the ranks are those of our rows.

    Args:
        work: our side of the union.
        universe: `U`, sorted.
        own: UIDs of our own, each followed by its row, as `with_rows` returns them.
        count: how many rows we have.

    Raises:
        ProtocolViolation: a UID is not in `U`, or two are equal.
    """
    return store_ranks(work, _joined(work, universe, own, count), count)


def store_ranks(work: UnionWork, rows_and_ranks: Iterable[Elements], count: int) -> StoredRanks:
    """Store ranks in row order; `rows_and_ranks` has those of our range, in any order."""
    storage, partitions = work.journal.storage, work.partitions
    starts = np.array([first_row(number) for number in range(1, partitions.count)], dtype=np.uint64)
    with work.sorting("rows", count, ROW_BYTES + RANK_BYTES, starts) as by_row:
        for block in rows_and_ranks:
            by_row.add(block)
        found = by_row.complete()
        if found != count:
            raise InternalError(f"{found} ranks were found for {count} elements")
        with writing_set(storage, RANKS) as writer:
            for block in by_row.blocks():
                writer.append(np.ascontiguousarray(block[:, ROW_BYTES:]))
    return StoredRanks(StoredSet(storage, RANKS, RANK_BYTES, writer.tally.facts))


def first_row(partition: int) -> int:
    """Return the first row number of a partition; the partitions have disjoint row numbers."""
    return partition << 48


def with_rows(chunks: Iterable[Elements], first: int) -> Iterator[Elements]:
    """Append to each element, or UID, the number of its row; rows are numbered from `first` on."""
    row = first
    for chunk in chunks:
        yield np.hstack([chunk, rank_bytes(np.arange(row, row + len(chunk)))])
        row += len(chunk)


def row_numbers(records: Elements) -> npt.NDArray[np.int64]:
    """Return the rows that `with_rows` has appended."""
    return _numbers(records[:, -ROW_BYTES:])


def _joined(
    work: UnionWork, universe: StoredSet, own: Iterable[Elements], count: int
) -> Iterator[Elements]:
    """Yield the row of each own UID in our range with its rank in `U`, in the order of `U`."""
    width, start = universe.width, first_rank(work, len(universe))
    with work.sorting("uids", count, width + ROW_BYTES) as by_uid:
        for records in own:
            by_uid.add(records)
        by_uid.complete()
        distinct = AscendingCheck()
        for uids, records in in_step(universe.chunks(), by_uid.blocks(), width):
            if len(records):
                wanted = np.ascontiguousarray(records[:, :width])
                if not distinct.accepts(wanted):
                    raise ProtocolViolation("the final check failed: two IDs have the same UID")
                ranks = find_rows(uids, wanted) if len(uids) else np.array([-1])
                if np.any(ranks < 0):
                    raise ProtocolViolation("the final check failed: an ID has no UID in the union")
                yield np.hstack([records[:, width:], rank_bytes(start + ranks)])
            start += len(uids)


def first_rank(work: UnionWork, size: int) -> int:
    """Return the first rank of our range of `U`, which has `size` UIDs; call it once."""
    partitions = work.partitions
    sizes = partitions.all_to_all("sizes of ranges", [size] * partitions.count)
    return sum(sizes[: partitions.number])


def rank_bytes(numbers: npt.NDArray[np.int64]) -> Elements:
    """Return numbers as rows of bytes."""
    return numbers.astype(_NUMBER).view(np.uint8).reshape(-1, 8)


def _numbers(rows: Elements) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(rows).view(_NUMBER)[:, 0].astype(np.int64)
