"""The interface through which protocol code talks to the peer: a link with named channels."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from florist.common.core.errors import FloristError
    from florist.common.transport.messages import Control, Message

M = TypeVar("M", bound="Message | Control")

#: The channel for the handshake, the heartbeats and the final message of a session.
CONTROL = "control"


class Channel(Protocol):
    """An ordered, bidirectional message stream. One thread may send while another one receives."""

    @property
    def name(self) -> str: ...

    def send(self, message: Message) -> None:
        """Send a message; blocks while the peer does not read (backpressure).

        Raises:
            PeerLost: the peer has closed its link.
            FloristError: the error with which the link failed.
        """
        ...

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        """Wait for the next message, which must be of type `expected`.

        Args:
            expected: the only message type (or base class) that the protocol allows here.
            timeout: seconds; None waits until a message arrives or the link fails. The session's
                heartbeats fail the link of a silent peer, so None does not wait forever.

        Raises:
            ProtocolViolation: the peer sent a message of another type or malformed bytes, or
                closed the channel or the link.
            PeerLost: no message arrived within `timeout`; the link remains usable.
            FloristError: the error with which the link failed.
        """
        ...

    def close(self) -> None:
        """Send nothing more on this channel. Messages already sent still arrive."""
        ...


class Link(Protocol):
    """The connection between the two parties: opens channels, fails or closes as a whole."""

    @property
    def traffic(self) -> Traffic: ...

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        """Open the channel of that name, once per link. Both parties open the same names.

        Args:
            name: lower-case letters, digits, dots and hyphens.
            timeout: seconds to wait until the peer opens the channel too. None does not wait:
                messages sent before that are kept for the peer.

        Raises:
            PeerLost: the peer did not open the channel in time, or has closed its link.
            FloristError: the error with which the link failed.
        """
        ...

    def fail(self, error: FloristError) -> None:
        """Close the link on this side: pending and later calls raise `error`.

        Only the first error counts. The peer is not notified (the session does that first).
        """
        ...

    @property
    def failure(self) -> FloristError | None: ...

    def close(self) -> None:
        """Close normally: messages already sent are delivered first, which takes seconds at most.

        After a failure, only release resources. Later calls raise TransportError, or the failure.
        """
        ...


@dataclass(frozen=True, slots=True)
class MessageCount:
    """A number of messages and the sum of their encoded sizes."""

    messages: int = 0
    bytes: int = 0

    def plus(self, other: MessageCount) -> MessageCount:
        return MessageCount(self.messages + other.messages, self.bytes + other.bytes)


#: Counts by the name of the message type.
MessageCounts = dict[str, MessageCount]


def sum_of_counts(one: MessageCounts, other: MessageCounts) -> MessageCounts:
    """Add two sets of counts, type by type."""
    none = MessageCount()
    return {
        kind: one.get(kind, none).plus(other.get(kind, none)) for kind in one.keys() | other.keys()
    }


@dataclass(slots=True)
class Traffic:
    """Bytes of encoded messages in both directions; thread-safe."""

    #: Bytes over the link itself.
    sent: int = 0
    received: int = 0
    #: Bytes over the links of this party's branches.
    sent_by_branches: int = 0
    received_by_branches: int = 0
    _sent: MessageCounts = field(default_factory=dict, repr=False)
    _received: MessageCounts = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count_sent(self, size: int, kind: str = "") -> None:
        """Count a message of `kind`, the name of its type."""
        with self._lock:
            self.sent += size
            _count(self._sent, kind, size)

    def count_received(self, size: int, kind: str = "") -> None:
        """Count a message of `kind`, the name of its type."""
        with self._lock:
            self.received += size
            _count(self._received, kind, size)

    @property
    def sent_by_type(self) -> MessageCounts:
        """The messages over the link itself, those of branches not included."""
        with self._lock:
            return dict(self._sent)

    @property
    def received_by_type(self) -> MessageCounts:
        """The messages over the link itself, those of branches not included."""
        with self._lock:
            return dict(self._received)

    def count_branches(self, sent: int, received: int) -> None:
        with self._lock:
            self.sent_by_branches += sent
            self.received_by_branches += received

    @property
    def all_sent(self) -> int:
        return self.sent + self.sent_by_branches

    @property
    def all_received(self) -> int:
        return self.received + self.received_by_branches


def _count(counts: MessageCounts, kind: str, size: int) -> None:
    counts[kind] = counts.get(kind, MessageCount()).plus(MessageCount(1, size))
