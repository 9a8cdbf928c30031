"""Sets of elements in storage: written chunk by chunk, read as streams, never held whole."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from florist.common.disk.rows import read_rows
from florist.common.psu.set_stream import rows_per_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.disk.storage import Storage
    from florist.common.groups.group import Elements


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
