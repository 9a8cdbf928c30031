"""Partitions that call each other: what each was told, and what it has for the others."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import TYPE_CHECKING, Protocol

import numpy as np

from florist.common.core.errors import PeerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from florist.common.core.errors import FloristError
    from florist.common.psu.shared_sorting import Scatter
    from florist.common.storage.elements import Elements

#: Seconds between two looks whether the link to the peer still stands.
_LOOK = 0.2


class GroupMember(Protocol):
    """A sibling as it is called from outside."""

    def tell(self, label: str, sender: int, number: int) -> None:
        """`sender` says `number` under `label`."""
        ...

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        """As `Scatter.part`, of what is offered under `label`."""
        ...


@dataclass(slots=True, eq=False)
class Mailbox:
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
    def offer(self, label: str, rows: Scatter) -> Iterator[None]:
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
class WorkerGroup:
    """Partitions that are called one by one."""

    number: int
    #: Ours.
    mailbox: Mailbox
    #: All of them in order; we are one.
    members: Sequence[GroupMember]
    #: Raises if the link to the peer has failed.
    check: Callable[[], None]

    @property
    def count(self) -> int:
        return len(self.members)

    def all_to_all(self, label: str, numbers: Sequence[int]) -> Sequence[int]:
        for member, number in zip(self.members, numbers, strict=True):
            member.tell(label, self.number, number)
        return self.mailbox.numbers(label, self.count, self.check)

    def offer(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        return self.mailbox.offer(label, rows)

    def fetch(self, label: str, width: int) -> Iterator[Elements]:
        for place in range(self.count):  # each begins with another one
            member = self.members[(self.number + place) % self.count]
            start = -1
            while start:
                self.check()
                start, data = member.rows(label, self.number, max(start, 0))
                if data:
                    yield np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
