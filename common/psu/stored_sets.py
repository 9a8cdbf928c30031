"""Sets of elements in storage, written and read in chunks, never loaded as a whole."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from threading import Condition, Lock
from typing import TYPE_CHECKING, BinaryIO, Protocol

from florist.common.core.errors import InternalError
from florist.common.core.prefetch import prefetched
from florist.common.psu.set_stream import rows_per_chunk
from florist.common.storage.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage

#: Seconds between two checks for failure while waiting.
_CHECK_SECONDS = 0.2

#: A number of chunks that is never reached.
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class SetFacts:
    """The size of a set, and the SHA-256 of its elements in order."""

    count: int
    sha256: bytes


class Tally:
    """Computes the facts of a set from its elements, added in order."""

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
    """A complete set in storage; any number of readers can stream it."""

    storage: Storage
    name: str
    width: int
    facts: SetFacts

    def __len__(self) -> int:
        return self.facts.count

    def chunks(self) -> Iterator[Elements]:
        """Yield the elements in order, as many at a time as one message holds."""
        rows = rows_per_chunk(self.width)
        with self.storage.reading(self.name) as file:
            for start in range(0, len(self), rows):
                yield read_rows(file, min(rows, len(self) - start), self.width)

    @property
    def is_intact(self) -> bool:
        """Whether the file still holds what was written; reads all of it."""
        if self.storage.size(self.name) != len(self) * self.width:
            return False
        tally = Tally()
        for chunk in self.chunks():
            tally.add(chunk)
        return tally.facts == self.facts


class ReadableSet(Protocol):
    """A set that can be streamed: it is stored, or being stored."""

    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[Elements]:
        """Yield the elements in order, as many at a time as one message holds."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SetWriter:
    """Writes the elements of one set, in order."""

    file: BinaryIO
    tally: Tally

    def append(self, elements: Elements) -> None:
        self.tally.add(elements)
        self.file.write(elements.data)

    def appended(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        """Yield the chunks, after appending each."""
        for chunk in chunks:
            self.append(chunk)
            yield chunk


@contextmanager
def writing_set(storage: Storage, name: str) -> Iterator[SetWriter]:
    """Write a set, which is stored under its name if the block succeeds; `tally` has its facts."""
    with storage.writing(name) as file:
        yield SetWriter(file, Tally())


class TemporarySet:
    """A set in a temporary file: written in order, then read any number of times."""

    def __init__(self, file: BinaryIO, width: int) -> None:
        self._file = file
        self._width = width
        self._count = 0

    def append(self, elements: Elements) -> None:
        self._file.write(elements.data)
        self._count += len(elements)

    def chunks(self) -> Iterator[Elements]:
        """Yield the elements in order; one reader at a time."""
        rows = rows_per_chunk(self._width)
        self._file.seek(0)
        for start in range(0, self._count, rows):
            yield read_rows(self._file, min(rows, self._count - start), self._width)


@contextmanager
def temporary_set(storage: Storage, width: int) -> Iterator[TemporarySet]:
    """Return an empty set of elements of `width` bytes, which is deleted when the block ends."""
    with storage.scratch() as file:
        yield TemporarySet(file, width)


@contextmanager
def spooled(
    chunks: Iterable[Elements], storage: Storage, width: int
) -> Iterator[Iterator[Elements]]:
    """Read chunks of elements of `width` bytes without waiting for their consumer.

    A background thread reads them, and so whoever sends them never waits for us. What is not
    consumed yet is in a temporary file.
    """
    with storage.scratch() as file:
        lock = Lock()

        def write() -> Iterator[tuple[int, int]]:
            position = 0
            for chunk in chunks:
                with lock:
                    file.seek(position)
                    file.write(chunk.data)
                yield position, len(chunk)
                position += chunk.nbytes

        written = prefetched(write(), _UNLIMITED)

        def read() -> Iterator[Elements]:
            for position, rows in written:
                with lock:
                    file.seek(position)
                    chunk = read_rows(file, rows, width)
                yield chunk

        with closing(written):
            yield read()


class ArrivingSet:
    """A set that one thread writes while others read it, waiting for what is not written yet.

    It is also stored under its name; see `arriving_set`.
    """

    def __init__(
        self,
        writing: AbstractContextManager[SetWriter],
        copy: BinaryIO,
        width: int,
        count: int,
    ) -> None:
        """Readers read `copy`, a temporary file."""
        self._writing = ExitStack()
        self._writer = self._writing.enter_context(writing)
        self._copy = copy
        self._width = width
        self._count = count
        self._written = 0
        self._failure: BaseException | None = None
        self._check: Callable[[], None] = _no_check
        #: Guards the state, and the position in the copy.
        self._changed = Condition()

    def __len__(self) -> int:
        return self._count

    def append(self, elements: Elements) -> None:
        """Append the next elements; raise the error that the set failed with, if any."""
        if self._failure is not None:
            raise self._failure
        self._writer.append(elements)
        with self._changed:
            self._copy.seek(self._written * self._width)
            self._copy.write(elements.data)
            self._written += len(elements)
            self._changed.notify_all()

    def end(self) -> SetFacts:
        """Complete the set and store it; it can still be read here.

        Raises:
            InternalError: elements are missing.
        """
        if self._written != self._count:
            raise InternalError(f"only {self._written} elements of {self._count} have arrived")
        self._writing.close()
        return self._writer.tally.facts

    def fail(self, error: BaseException) -> None:
        """Make waiting readers, and the writer, raise `error`."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def watch(self, check: Callable[[], None]) -> None:
        """Call `check` while readers wait, so that they raise what it raises."""
        self._check = check

    def drop(self) -> None:
        """Discard the set, unless it is complete."""
        gone = InternalError("a set was not completed")
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
                self._changed.wait(_CHECK_SECONDS)
            self._copy.seek(start * self._width)
            return read_rows(self._copy, end - start, self._width)


def _no_check() -> None:
    """Raise nothing."""


@contextmanager
def arriving_set(storage: Storage, name: str, width: int, count: int) -> Iterator[ArrivingSet]:
    """Return a set of `count` elements of `width` bytes, readable until the block ends."""
    with storage.scratch() as copy:
        arriving = ArrivingSet(writing_set(storage, name), copy, width, count)
        try:
            yield arriving
        finally:
            arriving.drop()
