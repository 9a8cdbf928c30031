"""The branches of one party as a worker group: they exchange numbers and rows of elements."""

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

#: Seconds between two checks that the link to the peer still works.
_CHECK_SECONDS = 0.2


class GroupMember(Protocol):
    """A branch, as the others of its party call it."""

    def post(self, label: str, sender: int, number: int) -> None:
        """Put `number` of branch `sender` into the mailbox, under `label`."""
        ...

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        """Return what `Scatter.part` does, for the rows offered under `label`."""
        ...


@dataclass(slots=True, eq=False)
class Mailbox:
    """The numbers that other branches have posted to a branch, and the rows it offers them."""

    _posted: dict[str, dict[int, int]] = field(default_factory=dict)
    _offers: dict[str, Scatter] = field(default_factory=dict)
    _changed: Condition = field(default_factory=Condition)
    _failure: FloristError | None = None

    # -- called by other branches ------------------------------------------------------------------

    def post(self, label: str, sender: int, number: int) -> None:
        with self._changed:
            self._posted.setdefault(label, {})[sender] = number
            self._changed.notify_all()

    def rows(self, label: str, owner: int, start: int) -> tuple[int, bytes]:
        try:
            return self._offers[label].part(owner, start)
        except (KeyError, ValueError):  # no longer offered, or its file is closed
            raise PeerLost("a branch of ours has ended this attempt") from None

    # -- called by the branch that owns it ---------------------------------------------------------

    def collect(self, label: str, count: int, check: Callable[[], None]) -> list[int]:
        """Wait for the numbers of all `count` branches, in order; ends early if `check` raises."""
        with self._changed:
            while len(posted := self._posted.get(label, {})) < count:
                check()
                if self._failure is not None:
                    raise self._failure
                self._changed.wait(_CHECK_SECONDS)
            del self._posted[label]
        return [posted[sender] for sender in range(count)]

    @contextmanager
    def offer(self, label: str, rows: Scatter) -> Iterator[None]:
        """Offer rows to the other branches until the block ends."""
        self._offers[label] = rows
        try:
            yield
        finally:
            del self._offers[label]

    def fail(self, error: FloristError) -> None:
        """Make whoever waits raise `error`."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


@dataclass(frozen=True, slots=True, eq=False)
class WorkerGroup:
    """The partitions of a union that is computed by the branches of a party."""

    number: int
    #: Our own.
    mailbox: Mailbox
    #: All branches in order, this one included.
    members: Sequence[GroupMember]
    #: Raises if the link to the peer has failed.
    check: Callable[[], None]

    @property
    def count(self) -> int:
        return len(self.members)

    def all_to_all(self, label: str, numbers: Sequence[int]) -> Sequence[int]:
        for member, number in zip(self.members, numbers, strict=True):
            member.post(label, self.number, number)
        return self.mailbox.collect(label, self.count, self.check)

    def offer(self, label: str, rows: Scatter) -> AbstractContextManager[None]:
        return self.mailbox.offer(label, rows)

    def fetch(self, label: str, width: int) -> Iterator[Elements]:
        for offset in range(self.count):  # each branch starts with a different one
            member = self.members[(self.number + offset) % self.count]
            start = -1
            while start:
                self.check()
                start, data = member.rows(label, self.number, max(start, 0))
                if data:
                    yield np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
