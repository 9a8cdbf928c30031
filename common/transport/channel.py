"""What protocol code sees of the other party: a link, and named channels over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from florist.common.core.errors import FloristError
    from florist.common.transport.messages import Control, Message

M = TypeVar("M", bound="Message | Control")

#: The channel that carries the handshake, heartbeats and the end of a session.
CONTROL = "control"


class Channel(Protocol):
    """One ordered, two-way conversation. A thread may send while another receives."""

    @property
    def name(self) -> str: ...

    def send(self, message: Message) -> None:
        """Hand one message over; blocks while the peer does not read (back-pressure).

        Raises:
            PeerLost: the peer has closed its link.
            FloristError: the link's failure, once it has one.
        """
        ...

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        """Wait for the next message, which must be an `expected`.

        Args:
            expected: the one message type (or base class) that the protocol allows here.
            timeout: seconds; None waits until the message comes or the link fails. The session's
                heartbeats fail the link of a silent peer, so None does not wait for ever.

        Raises:
            ProtocolViolation: another type came, bytes that decode to nothing, or the end of the
                channel (which the peer's closing its link is too).
            PeerLost: nothing came within `timeout`; the link is as it was.
            FloristError: the link's failure, once it has one.
        """
        ...

    def close(self) -> None:
        """Say that nothing more will be sent here. Messages on their way still arrive."""
        ...


class Link(Protocol):
    """All there is between the two parties: opens channels, fails or closes as a whole."""

    @property
    def traffic(self) -> Traffic: ...

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        """The channel of that name; each name once per link. Both sides ask for the same names.

        Args:
            name: lower-case letters, digits, dots and hyphens.
            timeout: seconds for the peer to ask for it too. None does not wait for that: what is
                sent before waits for the peer.

        Raises:
            PeerLost: the peer did not open it in time, or has closed its link.
            FloristError: the link's failure, once it has one.
        """
        ...

    def fail(self, error: FloristError) -> None:
        """End the link on this side: calls under way and all later ones raise `error`.

        The first error wins. Says nothing to the peer (the session does that first).
        """
        ...

    @property
    def failure(self) -> FloristError | None: ...

    def close(self) -> None:
        """Close in good order: what was sent is delivered first (within seconds), then all ends.

        After a failure it just frees what the link holds. Later calls raise TransportError, or the
        failure.
        """
        ...


@dataclass(slots=True)
class Traffic:
    """Bytes of encoded messages, both ways; safe to count from many threads."""

    #: Over the link.
    sent: int = 0
    received: int = 0
    #: Beside it: over links of this party's branches.
    sent_beside: int = 0
    received_beside: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count_sent(self, size: int) -> None:
        with self._lock:
            self.sent += size

    def count_received(self, size: int) -> None:
        with self._lock:
            self.received += size

    def count_beside(self, sent: int, received: int) -> None:
        with self._lock:
            self.sent_beside += sent
            self.received_beside += received

    @property
    def all_sent(self) -> int:
        return self.sent + self.sent_beside

    @property
    def all_received(self) -> int:
        return self.received + self.received_beside
