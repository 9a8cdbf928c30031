"""The interface of executors, which do the heavy computation of a union, and the local executor.

All streams keep their order, and all executors return the same results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from florist.common.core.batches import batched
from florist.common.core.errors import ProtocolViolation
from florist.common.storage.element_sets import sorted_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.groups.group import Exponent, Group
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import IdColumn


#: Chunks that are validated together: a test of many elements takes hardly longer than one of few.
CHECKED_AT_ONCE = 8


class Executor(Protocol):
    """Hashes, raises, checks and sorts elements; safe to use from several threads.

    A stream may read its input in another thread and ahead of what is consumed. It raises whatever
    its input raises.
    """

    @property
    def name(self) -> str:
        """A description for logs and reports."""
        ...

    @property
    def group(self) -> Group:
        """The group on this machine; the creator of the group closes it."""
        ...

    @property
    def max_in_flight(self) -> int:
        """The most chunks of one stream that are in progress at a time."""
        ...

    @property
    def memory(self) -> int:
        """Additional bytes of memory in this process for chunks in progress."""
        ...

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        """Yield one element per ID."""
        ...

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
    ) -> Iterator[Elements]:
        """Yield each chunk raised to `exponent`; with `check`, validate its elements first.

        Raises:
            ProtocolViolation: an element is invalid; see the group's `validate` and `power`.
        """
        ...

    def checked(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        """Yield the chunks unchanged, after validating their elements.

        Raises:
            ProtocolViolation: an element is invalid; see the group's `validate`.
        """
        ...

    def sorted(self, rows: Elements) -> Elements:
        """Return `sorted_set` of the rows, which may have any width."""
        ...

    def close(self) -> None:
        """Release the resources; unfinished streams fail."""
        ...


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """Uses the group's own threads on this machine. Streams compute lazily."""

    group: Group
    name: ClassVar[str] = "local"
    max_in_flight: ClassVar[int] = 1
    memory: ClassVar[int] = 0

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        return map(self.group.hash_ids, batches)

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
    ) -> Iterator[Elements]:
        for chunk in self.checked(chunks) if check else chunks:
            yield self.group.power(chunk, exponent)

    def checked(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        for several in batched(chunks, CHECKED_AT_ONCE):
            try:
                self.group.validate(np.concatenate(several))
            except ProtocolViolation:
                for chunk in several:
                    self.group.validate(chunk)
                    yield chunk
            else:
                yield from several

    def sorted(self, rows: Elements) -> Elements:
        return sorted_set(rows)

    def close(self) -> None:
        """Do nothing: it has no resources of its own."""
