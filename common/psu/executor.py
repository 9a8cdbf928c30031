"""Where a union's heavy work is done: on this machine, or on a cluster of ours.

All streams keep their order, and all executors give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from florist.common.storage.element_sets import sorted_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.groups.group import Exponent, Group
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import IdColumn


class Executor(Protocol):
    """Hashes, raises, checks and sorts; safe to use from several threads.

    A stream may take what it is given in a thread of its own, and some of it before it is wanted.
    What the giving of it raises is raised by the stream.
    """

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def group(self) -> Group:
        """The group, on this machine: its widths, its exponents. Whoever made it closes it."""
        ...

    @property
    def ahead(self) -> int:
        """Chunks of one stream that it may have under way at a time."""
        ...

    @property
    def memory(self) -> int:
        """Bytes of this process that it may take for work under way, beyond the usual."""
        ...

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        """One element per ID."""
        ...

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
    ) -> Iterator[Elements]:
        """Each chunk raised to `exponent`; with `check`, only if all of its elements are valid.

        Raises:
            ProtocolViolation: as the group's `validate` and `power`.
        """
        ...

    def checked(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        """The chunks as they are, all of their elements valid.

        Raises:
            ProtocolViolation: as the group's `validate`.
        """
        ...

    def sorted(self, rows: Elements) -> Elements:
        """`sorted_set` of rows of any width that it takes."""
        ...

    def close(self) -> None:
        """End what it started; streams that are not at their end fail."""
        ...


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """The group's own threads on this machine. What a stream gives, it does when asked for it."""

    group: Group
    name: ClassVar[str] = "local"
    ahead: ClassVar[int] = 1
    memory: ClassVar[int] = 0

    def hashed(self, batches: Iterable[IdColumn]) -> Iterator[Elements]:
        return map(self.group.hash_ids, batches)

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool
    ) -> Iterator[Elements]:
        for chunk in self.checked(chunks) if check else chunks:
            yield self.group.power(chunk, exponent)

    def checked(self, chunks: Iterable[Elements]) -> Iterator[Elements]:
        for chunk in chunks:
            self.group.validate(chunk)
            yield chunk

    def sorted(self, rows: Elements) -> Elements:
        return sorted_set(rows)

    def close(self) -> None:
        """Nothing of its own to end."""
