"""What both kinds of link share, the one in memory and the one over the network.

A channel is two pipes of encoded messages, one each way. In memory the two ends hold the same two
pipes; over the network each end has its own, and threads carry the bytes between them.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

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

    from florist.common.transport.channel import M
    from florist.common.transport.messages import Message

#: Seconds between the break of a line and its report: a reason that the peer gave just before, on
#: the control channel, is read within them and wins.
GRACE = 1.0


class Pipe:
    """One way of a channel: a bounded queue of encoded messages, and its end.

    Whoever waits here passes a `check`, asked before and after each wait: it raises to give up.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._changed = Condition()

    def put(self, data: bytes, check: Callable[[], None]) -> None:
        """Append, when there is room."""
        with self._changed:
            check()
            while len(self._messages) >= self._capacity and not self._ended:
                self._changed.wait()
                check()
            if self._ended:
                raise InternalError("a message was sent on a channel after it was closed")
            self._messages.append(data)
            self._changed.notify_all()

    def get(self, check: Callable[[], None], timeout: float | None = None) -> bytes | None:
        """The next message; None after the last.

        Raises:
            TimeoutError: nothing came within `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            check()
            while not self._messages and not self._ended:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise TimeoutError
                self._changed.wait(remaining)
                check()
            if not self._messages:
                return None
            self._changed.notify_all()
            return self._messages.popleft()

    def end(self, *, drop: bool = False) -> None:
        """Take no more messages; those inside remain to be read, unless dropped."""
        with self._changed:
            self._ended = True
            if drop:
                self._messages.clear()
            self._changed.notify_all()

    def wake(self) -> None:
        """Let those who wait ask their `check` again."""
        with self._changed:
            self._changed.notify_all()


class PipeChannel:
    """A channel's end: encodes into one pipe, decodes out of the other."""

    def __init__(self, name: str, link: PipeLink, incoming: Pipe, outgoing: Pipe) -> None:
        self.name = name
        self.incoming = incoming
        self.outgoing = outgoing
        #: Whether this side, and the other, have asked for it. The link's lock guards both.
        self.asked_here = False
        self.asked_there = False
        self._link = link

    def send(self, message: Message) -> None:
        data = codec.encode(message)
        self.outgoing.put(data, self._link.check_can_send)
        self._link.traffic.count_sent(len(data))

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        try:
            data = self.incoming.get(self._link.check, timeout)
        except TimeoutError:
            raise PeerLost(
                f"the peer sent nothing on channel {self.name} for {timeout:g} s, "
                f"while {expected.__name__} was expected"
            ) from None
        if data is None:
            raise ChannelEnded(
                f"the peer ended channel {self.name} while {expected.__name__} was expected"
            )
        self._link.traffic.count_received(len(data))
        message = codec.decode(data)
        if not isinstance(message, expected):
            raise ProtocolViolation(
                f"the peer sent {type(message).__name__} on channel {self.name} "
                f"while {expected.__name__} was expected"
            )
        return message

    def close(self) -> None:
        self.outgoing.end()


class PipeLink:
    """What both kinds of link have in common: channels by name, one failure, one end."""

    def __init__(self, capacity: int, lock: Condition | None = None) -> None:
        self._traffic = Traffic()
        self._capacity = capacity
        self._channels: dict[str, PipeChannel] = {}
        self._failure: FloristError | None = None
        self._closed = False
        self._peer_closed = False
        #: Guards everything above; notified on every change.
        self._changed = lock or Condition()

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    @property
    def failure(self) -> FloristError | None:
        return self._failure

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed it, or it has failed."""
        return self._closed or self._failure is not None

    def check(self) -> None:
        """Raise if this side can no longer use the link."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise TransportError("the connection is closed on this side")

    def check_can_send(self) -> None:
        """Raise if nothing can be sent any more."""
        self.check()
        if self._peer_closed:
            raise PeerLost("the peer has closed the connection")

    def channel(self, name: str, timeout: float | None = None) -> PipeChannel:
        with self._changed:
            self.check()
            channel = self._find(name)
            if channel.asked_here:
                raise InternalError(f"channel {name} was asked for twice")
            if not channel.asked_there:
                self.check_can_send()
            channel.asked_here = True
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
        """The channel of that name, made if need be. Needs the lock."""
        if name not in self._channels:
            self._channels[name] = self._make(name)
        return self._channels[name]

    def _peer_asked_for(self, name: str) -> None:
        with self._changed:
            self._find(name).asked_there = True
            self._changed.notify_all()

    def _await_peer(self, channel: PipeChannel, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not channel.asked_there:
                self.check_can_send()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise PeerLost(
                        f"the peer did not open channel {channel.name} within {timeout:g} s"
                    )
                self._changed.wait(remaining)

    def _peer_has_closed(self) -> None:
        with self._changed:
            self._peer_closed = True
            never_opened = [c for c in self._channels.values() if not c.asked_there]
            self._changed.notify_all()
        for channel in never_opened:
            channel.incoming.end()
        self._wake()

    def _wake(self) -> None:
        for channel in list(self._channels.values()):
            channel.incoming.wake()
            channel.outgoing.wake()

    # -- what the two kinds do differently ---------------------------------------------------------

    def _make(self, name: str) -> PipeChannel:
        """A new channel of that name."""
        return PipeChannel(name, self, Pipe(self._capacity), Pipe(self._capacity))

    def _announce(self, channel: PipeChannel) -> None:
        """Tell the other side that this one has asked for `channel`."""
        raise NotImplementedError

    def _end(self, *, in_order: bool) -> None:
        """Called once when the link closes or fails, and with every later `close`."""
        raise NotImplementedError
