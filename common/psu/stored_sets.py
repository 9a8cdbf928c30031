"""Sets of elements in storage: written chunk by chunk, read as streams, never held whole."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING, BinaryIO, Protocol

from florist.common.core.errors import InternalError
from florist.common.psu.set_stream import rows_per_chunk
from florist.common.storage.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage

#: Seconds between two looks, while one waits, whether all is well.
_LOOK = 0.2


@dataclass(frozen=True, slots=True)
class SetFacts:
    """What is remembered of a set: how many elements, and the SHA-256 of them in their order."""

    count: int
    sha256: bytes


class Tally:
    """Takes a set's elements, in order, and gives its facts."""

    def __init__(self) -> None:
        self._count = 0
        self._hash = hashlib.sha256()

    def add(self, elements: Elements) -> None:
        self._count += len(elements)
        self._hash.update(elements.data)

    @property
    def facts(self) -> SetFacts:
        return SetFacts(self._count, self._hash.digest())


@dataclass(frozen=True, slots=True, eq=False)
class StoredSet:
    """A whole set; any number of streams can read it."""

    storage: Storage
    name: str
    width: int
    facts: SetFacts

    def __len__(self) -> int:
        return self.facts.count

    def chunks(self) -> Iterator[Elements]:
        """The elements in their order, as many at a time as travel in one message."""
        rows = rows_per_chunk(self.width)
        with self.storage.reading(self.name) as file:
            for start in range(0, len(self), rows):
                yield read_rows(file, min(rows, len(self) - start), self.width)

    @property
    def is_sound(self) -> bool:
        """Whether its file still holds what was written; reads all of it."""
        if self.storage.size(self.name) != len(self) * self.width:
            return False
        tally = Tally()
        for chunk in self.chunks():
            tally.add(chunk)
        return tally.facts == self.facts


class ReadableSet(Protocol):
    """A set that streams can read: it is stored, or is about to be."""

    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[Elements]:
        """The elements in their order, as many at a time as travel in one message."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SetWriter:
    """Takes the elements of one set, in order."""

    file: BinaryIO
    tally: Tally

    def append(self, elements: Elements) -> None:
        self.tally.add(elements)
        self.file.write(elements.data)


@contextmanager
def writing_set(storage: Storage, name: str) -> Iterator[SetWriter]:
    """A set that is there, under its name, when the block ends well; `tally` has its facts."""
    with storage.writing(name) as file:
        yield SetWriter(file, Tally())


class ArrivingSet:
    """A set that is written by one thread and read by others, which wait for what has yet to come.

    It is stored under its name too; see `arriving_set`.
    """

    def __init__(
        self,
        writing: AbstractContextManager[SetWriter],
        copy: BinaryIO,
        width: int,
        count: int,
    ) -> None:
        """`copy`, a scratch file, is what is read."""
        self._writing = ExitStack()
        self._writer = self._writing.enter_context(writing)
        self._copy = copy
        self._width = width
        self._count = count
        self._written = 0
        self._failure: BaseException | None = None
        self._check: Callable[[], None] = _all_is_well
        #: Guards all that changes, and the copy's place.
        self._changed = Condition()

    def __len__(self) -> int:
        return self._count

    def append(self, elements: Elements) -> None:
        """The next ones; what it failed with, if it has."""
        if self._failure is not None:
            raise self._failure
        self._writer.append(elements)
        with self._changed:
            self._copy.seek(self._written * self._width)
            self._copy.write(elements.data)
            self._written += len(elements)
            self._changed.notify_all()

    def end(self) -> SetFacts:
        """All have come, and the set is stored; it can still be read here.

        Raises:
            InternalError: some are missing.
        """
        if self._written != self._count:
            raise InternalError(f"{self._written} elements of {self._count} have come")
        self._writing.close()
        return self._writer.tally.facts

    def fail(self, error: BaseException) -> None:
        """No more will come: whoever waits is told."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def watch(self, check: Callable[[], None]) -> None:
        """Whoever waits also raises what `check` does."""
        self._check = check

    def drop(self) -> None:
        """Unless it has ended, nothing is stored."""
        gone = InternalError("a set was not written to its end")
        with suppress(InternalError):
            self._writing.__exit__(InternalError, gone, None)

    def chunks(self) -> Iterator[Elements]:
        rows = rows_per_chunk(self._width)
        for start in range(0, self._count, rows):
            yield self._read(start, min(start + rows, self._count))

    def _read(self, start: int, end: int) -> Elements:
        with self._changed:
            while self._written < end:
                if self._failure is not None:
                    raise self._failure
                self._check()
                self._changed.wait(_LOOK)
            self._copy.seek(start * self._width)
            return read_rows(self._copy, end - start, self._width)


def _all_is_well() -> None:
    """Nothing to raise."""


@contextmanager
def arriving_set(storage: Storage, name: str, width: int, count: int) -> Iterator[ArrivingSet]:
    """A set of `count` elements of `width` bytes, which can be read until the block ends."""
    with storage.scratch() as copy:
        arriving = ArrivingSet(writing_set(storage, name), copy, width, count)
        try:
            yield arriving
        finally:
            arriving.drop()
