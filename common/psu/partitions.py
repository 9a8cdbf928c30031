"""How a party's union is split among several processes, its partitions.

Partition `k` of a party talks to partition `k` of the peer. It has some blocks of the party's rows,
dealt round-robin, and of each shuffled set the elements in its own range of values. Raising moves
an element to another range; afterwards the partitions fetch the elements of their own ranges from
each other (`shared_sorting.py`). The peer learns nothing new from this: it knows all values of a
shuffled set, and so how many are in each range.

Most parties have one process, and so a single partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from florist.common.psu.shared_sorting import Scatter
    from florist.common.storage.elements import Elements

#: A party's rows are dealt to its partitions in blocks of this many.
BLOCK_ROWS = 16_384

#: The lower bounds, as the first eight bytes of a row, of all ranges but the first.
Cuts = npt.NDArray[np.uint64]


class Partitions(Protocol):
    """The partitions of one party in one union, as one of them sees them."""

    @property
    def number(self) -> int:
        """The index of our own partition, from 0."""
        ...

    @property
    def count(self) -> int:
        """How many partitions there are."""
        ...

    def all_to_all(self, label: str, numbers: Sequence[int]) -> Sequence[int]:
        """Send number `k` to partition `k`; return what each sent to us. Use each label once.

        It returns once all partitions have called it, and raises if the link to the peer fails.
        """
        ...

    def offer(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        """Let the other partitions fetch the rows of their ranges until the block ends."""
        ...

    def fetch(self, label: str, width: int) -> Iterator[Elements]:
        """Yield what all partitions offer of our range."""
        ...


@dataclass(frozen=True, slots=True)
class SinglePartition:
    """The whole union in one process."""

    number: int = 0
    count: int = 1

    def all_to_all(self, label: str, numbers: Sequence[int]) -> Sequence[int]:  # noqa: ARG002
        return numbers

    def offer(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        raise NotImplementedError("there is no other partition")

    def fetch(self, label: str, width: int) -> Iterator[Elements]:
        raise NotImplementedError("there is no other partition")


SINGLE = SinglePartition()


def blocks_dealt(rows: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield for each block of a party's rows the partition it belongs to, and its length."""
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        yield number % count, min(BLOCK_ROWS, rows - start)


def share(rows: int, number: int, count: int) -> int:
    """Return how many rows partition `number` of `count` has."""
    blocks, rest = divmod(rows, BLOCK_ROWS)
    each, more = divmod(blocks, count)
    own = each + (1 if number < more else 0)
    return own * BLOCK_ROWS + (rest if number == more else 0)


def value_cuts(count: int) -> Cuts:
    """Return the bounds of `count` ranges of equal size."""
    return np.array([(index << 64) // count for index in range(1, count)], dtype=np.uint64)
