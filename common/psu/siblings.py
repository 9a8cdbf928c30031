"""A party's union done by several processes of it, its branches: what they do together.

Branch `k` of a party talks to branch `k` of the peer. It has every so manieth block of the party's
rows, and of each shuffled set the elements of its own range of values. Raising moves an element to
another range, so after that siblings fetch from each other what is in theirs. None of it gives the
peer anything new: it knows all values of a shuffled set, and so how many are in a range.

Most parties are alone: one process, one range.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Condition, Lock
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from florist.common.disk.rows import read_rows
from florist.common.errors import PeerLost
from florist.common.groups.element_sets import prefixes
from florist.common.psu.ahead import taken_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from florist.common.disk.sorter import Sorter
    from florist.common.disk.storage import Storage
    from florist.common.errors import FloristError
    from florist.common.groups.group import Elements

#: A party's rows are dealt to its branches in blocks of so many.
BLOCK_ROWS = 16_384

#: Bytes that are cut into ranges at once, and that are fetched at once, about.
_CUT_BYTES = 1 << 21
_FETCH_BYTES = 1 << 20

#: Parts that are fetched before they are wanted.
_AHEAD = 2

#: Seconds between two looks whether the link to the peer still stands.
_LOOK = 0.2

#: The first rows, by their first eight bytes, of all ranges but the first.
Cuts = npt.NDArray[np.uint64]


class Siblings(Protocol):
    """The branches of one party in one union, as one of them sees them."""

    @property
    def number(self) -> int:
        """Ours, from 0."""
        ...

    @property
    def count(self) -> int: ...

    def swap(self, label: str, numbers: Sequence[int]) -> Sequence[int]:
        """Tell sibling `k` number `k`; what each has told us. Each label is used once.

        It ends when all siblings have called it, and fails when the link to the peer does.
        """
        ...

    def offering(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        """Let siblings fetch what is in their ranges, until the block ends."""
        ...

    def fetched(self, label: str, width: int) -> Iterator[Elements]:
        """What all of them offer of our range."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """No siblings."""

    number: int = 0
    count: int = 1

    def swap(self, label: str, numbers: Sequence[int]) -> Sequence[int]:  # noqa: ARG002
        return numbers

    def offering(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        raise NotImplementedError("there is nobody to offer anything")

    def fetched(self, label: str, width: int) -> Iterator[Elements]:
        raise NotImplementedError("there is nobody to fetch anything from")


ALONE = Alone()


def total(siblings: Siblings, label: str, number: int) -> int:
    """The sum of what each says."""
    return sum(siblings.swap(label, [number] * siblings.count))


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


class SetSorter(Protocol):
    """Takes rows in any order; gives those of our range sorted, once."""

    def add(self, rows: Elements) -> None:
        """Take more rows, of any range."""
        ...

    def complete(self) -> int:
        """No more will be added, here; how many rows are in our range, once no sibling adds any."""
        ...

    def blocks(self) -> Iterator[Elements]:
        """All rows of our range in ascending order, after `complete`."""
        ...


class Scatter:
    """Rows for all ranges, in a scratch file, from which each range can be read."""

    def __init__(self, file: BinaryIO, width: int, cuts: Cuts) -> None:
        self._file = file
        self._width = width
        self._cuts = cuts
        self._waiting: list[Elements] = []
        self._waiting_bytes = 0
        #: For each piece: where its ranges begin, as row numbers in the file, and where it ends.
        self._bounds: list[npt.NDArray[np.int64]] = []
        self._written = 0
        self._lock = Lock()

    def add(self, rows: Elements) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _CUT_BYTES:
            self._write()

    def counts(self) -> list[int]:
        """Rows of each range, after the last was added."""
        self._write()
        sizes = np.zeros(len(self._cuts) + 1, dtype=np.int64)
        for bounds in self._bounds:
            sizes += np.diff(bounds)
        return [int(size) for size in sizes]

    def part(self, owner: int, start: int) -> tuple[int, bytes]:
        """Rows of the range of `owner` from piece `start` on; and the piece to go on from, or 0."""
        found: list[bytes] = []
        size = 0
        for piece in range(start, len(self._bounds)):
            if size >= _FETCH_BYTES:
                return piece, b"".join(found)
            first, last = self._bounds[piece][owner : owner + 2].tolist()
            with self._lock:
                self._file.seek(first * self._width)
                found.append(read_rows(self._file, last - first, self._width).tobytes())
            size += len(found[-1])
        return 0, b"".join(found)

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        owners = np.searchsorted(self._cuts, prefixes(rows), side="right").astype(np.uint16)
        self._file.write(rows.take(np.argsort(owners, kind="stable"), axis=0).data)
        sizes = np.bincount(owners, minlength=len(self._cuts) + 1)
        self._bounds.append(self._written + np.concatenate([[0], np.cumsum(sizes)]))
        self._written += len(rows)
        self._waiting, self._waiting_bytes = [], 0


@contextmanager
def sorting_together(
    siblings: Siblings,
    label: str,
    storage: Storage,
    width: int,
    cuts: Cuts,
    make_sorter: Callable[[int], AbstractContextManager[Sorter]],
) -> Iterator[SetSorter]:
    """A sorter of what all siblings add; each gets its own range.

    Args:
        siblings: all of them do the same, under the same label.
        label: of this sorting.
        storage: for what waits to be fetched.
        width: bytes of a row.
        cuts: of the ranges.
        make_sorter: of our range, for about so many rows.
    """
    with storage.scratch() as file, ExitStack() as stack:
        yield _SharedSorter(siblings, label, width, Scatter(file, width, cuts), make_sorter, stack)
        siblings.swap(f"{label}: fetched", [0] * siblings.count)


@dataclass(slots=True, eq=False)
class _SharedSorter:
    siblings: Siblings
    label: str
    width: int
    scatter: Scatter
    make_sorter: Callable[[int], AbstractContextManager[Sorter]]
    stack: ExitStack
    sorter: Sorter | None = None

    def add(self, rows: Elements) -> None:
        self.scatter.add(rows)

    def complete(self) -> int:
        counts = self.scatter.counts()
        self.stack.enter_context(self.siblings.offering(self.label, self.scatter))
        expected = sum(self.siblings.swap(self.label, counts))
        self.sorter = self.stack.enter_context(self.make_sorter(expected))
        for rows in taken_ahead(self.siblings.fetched(self.label, self.width), _AHEAD):
            self.sorter.add(rows)
        return self.sorter.complete()

    def blocks(self) -> Iterator[Elements]:
        assert self.sorter is not None, "not complete"
        return self.sorter.blocks()


class Sibling(Protocol):
    """A sibling as it is called from outside."""

    def tell(self, label: str, sender: int, number: int) -> None:
        """`sender` says `number` under `label`."""
        ...

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        """As `Scatter.part`, of what is offered under `label`."""
        ...


@dataclass(slots=True, eq=False)
class Desk:
    """What a branch was told by its siblings, and what it has for them."""

    _told: dict[str, dict[int, int]] = field(default_factory=dict)
    _offers: dict[str, Scatter] = field(default_factory=dict)
    _changed: Condition = field(default_factory=Condition)
    _failure: FloristError | None = None

    # -- as siblings call it -----------------------------------------------------------------------

    def tell(self, label: str, sender: int, number: int) -> None:
        with self._changed:
            self._told.setdefault(label, {})[sender] = number
            self._changed.notify_all()

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        try:
            return self._offers[label].part(owner, start)
        except (KeyError, ValueError):  # it is not offered any more, or its file is closed
            raise PeerLost("a branch of ours has ended this attempt") from None

    # -- as its branch does ------------------------------------------------------------------------

    def numbers(self, label: str, count: int, check: Callable[[], None]) -> list[int]:
        """What all `count` siblings told; waits for it, while `check` does not raise."""
        with self._changed:
            while len(told := self._told.get(label, {})) < count:
                check()
                if self._failure is not None:
                    raise self._failure
                self._changed.wait(_LOOK)
            del self._told[label]
        return [told[sibling] for sibling in range(count)]

    @contextmanager
    def offering(self, label: str, rows: Scatter) -> Iterator[None]:
        self._offers[label] = rows
        try:
            yield
        finally:
            del self._offers[label]

    def fail(self, error: FloristError) -> None:
        """Whoever waits is told."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


@dataclass(frozen=True, slots=True, eq=False)
class Crew:
    """Siblings that are called one by one."""

    number: int
    #: Ours.
    desk: Desk
    #: All of them in order; we are one.
    members: Sequence[Sibling]
    #: Raises if the link to the peer has failed.
    check: Callable[[], None]

    @property
    def count(self) -> int:
        return len(self.members)

    def swap(self, label: str, numbers: Sequence[int]) -> Sequence[int]:
        for member, number in zip(self.members, numbers, strict=True):
            member.tell(label, self.number, number)
        return self.desk.numbers(label, self.count, self.check)

    def offering(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        return self.desk.offering(label, rows)

    def fetched(self, label: str, width: int) -> Iterator[Elements]:
        for place in range(self.count):  # each begins with another one
            member = self.members[(self.number + place) % self.count]
            start = -1
            while start:
                self.check()
                start, data = member.rows(label, self.number, max(start, 0))
                if data:
                    yield np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
