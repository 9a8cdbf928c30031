"""A party's union done by several processes of it, its branches: who has what, and who says what.

Branch `k` of a party talks to branch `k` of the peer. It has some blocks of the party's rows, dealt
in turn, and of each shuffled set the elements of its own range of values. Raising moves an element
to another range, so after that partitions fetch from each other what is in theirs
(`shared_sorting.py`). None of it gives the peer anything new: it knows all values of a shuffled
set, and so how many are in a range.

Most parties are alone: one process, one range.
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

#: A party's rows are dealt to its branches in blocks of so many.
BLOCK_ROWS = 16_384

#: The first rows, by their first eight bytes, of all ranges but the first.
Cuts = npt.NDArray[np.uint64]


class Partitions(Protocol):
    """The branches of one party in one union, as one of them sees them."""

    @property
    def number(self) -> int:
        """Ours, from 0."""
        ...

    @property
    def count(self) -> int: ...

    def all_to_all(self, label: str, numbers: Sequence[int]) -> Sequence[int]:
        """Tell sibling `k` number `k`; what each has told us. Each label is used once.

        It ends when all partitions have called it, and fails when the link to the peer does.
        """
        ...

    def offer(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        """Let partitions fetch what is in their ranges, until the block ends."""
        ...

    def fetch(self, label: str, width: int) -> Iterator[Elements]:
        """What all of them offer of our range."""
        ...


@dataclass(frozen=True, slots=True)
class SinglePartition:
    """No partitions."""

    number: int = 0
    count: int = 1

    def all_to_all(self, label: str, numbers: Sequence[int]) -> Sequence[int]:  # noqa: ARG002
        return numbers

    def offer(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        raise NotImplementedError("there is nobody to offer anything")

    def fetch(self, label: str, width: int) -> Iterator[Elements]:
        raise NotImplementedError("there is nobody to fetch anything from")


SINGLE = SinglePartition()


def blocks_dealt(rows: int, count: int) -> Iterator[tuple[int, int]]:
    """How a party's rows are dealt to its branches: whose each block is, and how long."""
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        yield number % count, min(BLOCK_ROWS, rows - start)


def share(rows: int, number: int, count: int) -> int:
    """How many rows branch `number` of `count` is dealt."""
    blocks, rest = divmod(rows, BLOCK_ROWS)
    each, more = divmod(blocks, count)
    own = each + (1 if number < more else 0)
    return own * BLOCK_ROWS + (rest if number == more else 0)


def value_cuts(count: int) -> Cuts:
    """Ranges of values, all of the same size."""
    return np.array([(place << 64) // count for place in range(1, count)], dtype=np.uint64)
