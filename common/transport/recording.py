"""A link that records its messages, for experiments and tests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING

from florist.common.transport.forwarding import ForwardingChannel, ForwardingLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.transport.channel import Channel, Link, M
    from florist.common.transport.messages import Control, Message


class Direction(Enum):
    SENT = "sent"
    RECEIVED = "received"


@dataclass(frozen=True, slots=True)
class Record:
    """A message that this side sent or received."""

    channel: str
    direction: Direction
    message: Message | Control


class RecordingLink(ForwardingLink):
    """Wraps a link and records all messages.

    A message is recorded as sent before it is handed to the link, and thus before any answer.
    """

    def __init__(self, inner: Link) -> None:
        super().__init__(inner)
        self._records: list[Record] = []
        self._lock = Lock()

    @property
    def records(self) -> tuple[Record, ...]:
        """The messages so far, in order."""
        with self._lock:
            return tuple(self._records)

    def drain(self) -> Iterator[Record]:
        """Iterate over the messages so far and remove them from the record."""
        with self._lock:
            records, self._records = deque(self._records), []
        while records:
            yield records.popleft()

    def channel(self, name: str, timeout: float | None = None) -> RecordingChannel:
        return RecordingChannel(self._inner.channel(name, timeout), self)

    def add(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)


class RecordingChannel(ForwardingChannel):
    """A channel of a `RecordingLink`."""

    def __init__(self, inner: Channel, link: RecordingLink) -> None:
        super().__init__(inner)
        self._link = link

    def send(self, message: Message) -> None:
        self._link.add(Record(self.name, Direction.SENT, message))
        self._inner.send(message)

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        message = self._inner.receive(expected, timeout)
        self._link.add(Record(self.name, Direction.RECEIVED, message))
        return message
