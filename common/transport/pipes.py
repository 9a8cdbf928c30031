"""The base of both kinds of link, in memory and over the network.

A channel consists of two pipes of encoded messages, one in each direction. In memory, the two ends
share the pipes; over the network, each end has its own, and threads transfer the bytes.
"""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import (
    ChannelEnded,
    FloristError,
    InternalError,
    PeerLost,
    ProtocolViolation,
    TransportError,
)
from florist.common.transport import codec
from florist.common.transport.channel import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.clock import Clock
    from florist.common.transport.channel import M
    from florist.common.transport.messages import Message

#: Seconds between the loss of a connection and its report. If the peer sent its own reason on the
#: control channel just before, that reason is read in this time and takes precedence.
GRACE = 1.0


class Pipe:
    """One direction of a channel: a bounded queue of encoded messages that can be closed.

    Callers that may wait pass a `check`, which is called before and after each wait and raises to
    give up.
    """

    def __init__(self, capacity: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._capacity = capacity
        self._clock = clock
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._changed = Condition()

    def put(self, data: bytes, check: Callable[[], None]) -> None:
        """Append a message; waits while the pipe is full."""
        with self._changed:
            check()
            while len(self._messages) >= self._capacity and not self._ended:
                self._clock.wait_on(self._changed, None)
                check()
            if self._ended:
                raise InternalError("a message was sent on a channel after it was closed")
            self._messages.append(data)
            self._changed.notify_all()

    def get(self, check: Callable[[], None], timeout: float | None = None) -> bytes | None:
        """The next message; None after the last one.

        Raises:
            TimeoutError: no message arrived within `timeout` seconds.
        """
        deadline = None if timeout is None else self._clock.now() + timeout
        with self._changed:
            check()
            while not self._messages and not self._ended:
                remaining = None if deadline is None else deadline - self._clock.now()
                if remaining is not None and remaining <= 0:
                    raise TimeoutError
                self._clock.wait_on(self._changed, remaining)
                check()
            if not self._messages:
                return None
            self._changed.notify_all()
            return self._messages.popleft()

    def end(self, *, drop: bool = False) -> None:
        """Accept no more messages. Queued messages can still be read, unless `drop` is true."""
        with self._changed:
            self._ended = True
            if drop:
                self._messages.clear()
            self._changed.notify_all()

    def wake(self) -> None:
        """Make all waiting callers run their `check`."""
        with self._changed:
            self._changed.notify_all()


class PipeChannel:
    """One end of a channel: encodes into one pipe and decodes from the other."""

    def __init__(self, name: str, link: PipeLink, incoming: Pipe, outgoing: Pipe) -> None:
        self.name = name
        self.incoming = incoming
        self.outgoing = outgoing
        #: Whether this side and the peer have opened the channel. Guarded by the link's lock.
        self.opened_here = False
        self.opened_by_peer = False
        self._link = link

    def send(self, message: Message) -> None:
        data = codec.encode(message)
        self.outgoing.put(data, self._link.check_can_send)
        self._link.traffic.count_sent(len(data), type(message).__name__)

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        try:
            data = self.incoming.get(self._link.check, timeout)
        except TimeoutError:
            raise PeerLost(
                f"the peer sent nothing on channel {self.name} for {timeout:g} s "
                f"while {expected.__name__} was expected"
            ) from None
        if data is None:
            raise ChannelEnded(
                f"the peer closed channel {self.name} while {expected.__name__} was expected"
            )
        message = codec.decode(data)
        self._link.traffic.count_received(len(data), type(message).__name__)
        if not isinstance(message, expected):
            raise ProtocolViolation(
                f"the peer sent {type(message).__name__} on channel {self.name} "
                f"while {expected.__name__} was expected"
            )
        return message

    def close(self) -> None:
        self.outgoing.end()


class PipeLink:
    """The base class of both kinds of link: channels by name, one failure, one close."""

    def __init__(
        self, capacity: int, lock: Condition | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._traffic = Traffic()
        self._capacity = capacity
        self._channels: dict[str, PipeChannel] = {}
        self._failure: FloristError | None = None
        self._closed = False
        self._peer_closed = False
        #: Guards everything above and is notified on every change.
        self._changed = lock or Condition()

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    @property
    def failure(self) -> FloristError | None:
        return self._failure

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed the link, or the link has failed."""
        return self._closed or self._failure is not None

    def check(self) -> None:
        """Raise if the link is closed."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise TransportError("the connection is closed on this side")

    def check_can_send(self) -> None:
        """Raise if the link is closed, here or by the peer."""
        self.check()
        if self._peer_closed:
            raise PeerLost("the peer has closed the connection")

    def channel(self, name: str, timeout: float | None = None) -> PipeChannel:
        with self._changed:
            self.check()
            channel = self._find(name)
            if channel.opened_here:
                raise InternalError(f"channel {name} was opened twice")
            if not channel.opened_by_peer:
                self.check_can_send()
            channel.opened_here = True
            self._changed.notify_all()
        self._announce(channel)
        if timeout is not None:
            self._await_peer(channel, timeout)
        return channel

    def fail(self, error: FloristError) -> None:
        with self._changed:
            if self.is_closed:
                return
            self._failure = error
            self._changed.notify_all()
        self._wake()
        self._end(in_order=False)

    def close(self) -> None:
        with self._changed:
            in_order = not self.is_closed
            self._closed = True
            self._changed.notify_all()
        self._wake()
        self._end(in_order=in_order)

    def _find(self, name: str) -> PipeChannel:
        """The channel of that name, created if necessary. The caller holds the lock."""
        if name not in self._channels:
            self._channels[name] = self._make(name)
        return self._channels[name]

    def _peer_opened(self, name: str) -> None:
        with self._changed:
            self._find(name).opened_by_peer = True
            self._changed.notify_all()

    def _await_peer(self, channel: PipeChannel, timeout: float) -> None:
        deadline = self._clock.now() + timeout
        with self._changed:
            while not channel.opened_by_peer:
                self.check_can_send()
                remaining = deadline - self._clock.now()
                if remaining <= 0:
                    raise PeerLost(
                        f"the peer did not open channel {channel.name} within {timeout:g} s"
                    )
                self._clock.wait_on(self._changed, remaining)

    def _peer_has_closed(self) -> None:
        with self._changed:
            self._peer_closed = True
            never_opened = [c for c in self._channels.values() if not c.opened_by_peer]
            self._changed.notify_all()
        for channel in never_opened:
            channel.incoming.end()
        self._wake()

    def _wake(self) -> None:
        for channel in list(self._channels.values()):
            channel.incoming.wake()
            channel.outgoing.wake()

    # -- what subclasses implement -----------------------------------------------------------------

    def _make(self, name: str) -> PipeChannel:
        """Create the channel of that name."""
        incoming, outgoing = (Pipe(self._capacity, self._clock) for _ in range(2))
        return PipeChannel(name, self, incoming, outgoing)

    def _announce(self, channel: PipeChannel) -> None:
        """Tell the peer that this side has opened `channel`."""
        raise NotImplementedError

    def _end(self, *, in_order: bool) -> None:
        """Release resources. Called when the link closes or fails, and on every later `close`."""
        raise NotImplementedError
