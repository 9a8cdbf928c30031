"""What both sides of the link over the network share: channels as gRPC streams.

Each channel is one two-way gRPC stream of encoded messages; its metadata name the session and the
channel. What gRPC does not offer is agreed here:

* An empty message ends a channel one way. (A gRPC server cannot end its side of a stream without
  ending the other side too.)
* A stream that ends after the empty message was closed in good order. One that ends without it
  broke. `control` opens first and ends last.
* A break is reported after a short grace, so that the peer's own reason, which comes on `control`
  at about the same moment, can win.

Each channel costs two threads: one of gRPC's that takes from the outgoing pipe, and one of ours
that fills the incoming pipe. Both pipes are short, so a peer that does not read stops the sender.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Thread, Timer
from typing import TYPE_CHECKING

import grpc

from florist.common.core.errors import FloristError, PeerLost, ProtocolViolation
from florist.common.core.text import printable
from florist.common.transport.channel import CONTROL
from florist.common.transport.messages import MAX_MESSAGE_BYTES
from florist.common.transport.pipes import GRACE, PipeLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.common.transport.pipes import PipeChannel

#: Ends a channel, one way.
END = b""

#: A stream's metadata: from the dialling side the first two, from the listening side the third.
SESSION = "florist-session"
CHANNEL = "florist-channel"
TLS = "florist-tls"

REQUIRED_TLS = "TLSv1.3"

#: Messages that wait in each direction of a channel, on each side.
_CAPACITY = 4
#: Seconds for what was sent to arrive: after `close`, and after a failure.
LINGER = 5.0
_FLUSH = 1.0
#: Seconds between two reports of an unchanged reason for waiting.
REPORT_EVERY = 5.0

# Notices a peer that is gone or frozen within 8 s: 4 of silence until a ping, 4 for its answer.
# gRPC times that answer by `ping_timeout`; a cut line by `keepalive_timeout`. The pings by which it
# measures bandwidth are off: on a slow line their answers queue behind data for longer than that.
# Whatever comes in keeps pings away, so a session's heartbeats carry it over a line however slow.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 4000),
    ("grpc.keepalive_timeout_ms", 4000),
    ("grpc.http2.ping_timeout_ms", 4000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.bdp_probe", 0),
)
# What a stream may have under way unread; with it, 40 MB/s fit a line of 100 ms there and back.
_WINDOW = (("grpc.http2.lookahead_bytes", MAX_MESSAGE_BYTES),)
# A little more than ours: a message that is just too large gets the codec's clear error.
_LONGEST = MAX_MESSAGE_BYTES + 64 * 1024
_SIZES = (
    ("grpc.max_receive_message_length", _LONGEST),
    ("grpc.max_send_message_length", _LONGEST),
)
#: gRPC's settings on both sides.
OPTIONS = (*_KEEPALIVE, *_WINDOW, *_SIZES)


class _Gone(Exception):  # noqa: N818 - it ends a loop
    """The stream has ended under us."""


class Stream:
    """A channel's gRPC stream, as one side sees it."""

    def __init__(self, channel: PipeChannel, cancel: Callable[[], object] = lambda: None) -> None:
        self.channel = channel
        self.cancel = cancel
        #: Set when gRPC has finished with the call.
        self.finished = Event()
        #: Whether nothing can go out any more.
        self.is_gone = False
        self._may_end = Event()

    def outgoing(self, link: PipeLink) -> Iterator[bytes]:
        """What goes out, up to the end of our side of the stream."""
        with suppress(_Gone):
            while (data := self.channel.outgoing.get(self._check)) is not None:
                yield data
            if link.failure is None:
                yield END
                self._may_end.wait()  # the other way is open, until the link or the stream ends

    def end(self, *, drop: bool) -> None:
        """End our side, after what is in the pipe, or at once."""
        self.channel.outgoing.end(drop=drop)
        self._may_end.set()

    def lose(self) -> None:
        """Stop: the stream has ended."""
        self.is_gone = True
        self.channel.outgoing.wake()
        self._may_end.set()

    def _check(self) -> None:
        if self.is_gone:
            raise _Gone


class GrpcLink(PipeLink):
    """What both sides have in common."""

    def __init__(self, peer_name: str) -> None:
        super().__init__(_CAPACITY)
        self._peer_name = peer_name
        self._streams: dict[str, Stream] = {}
        self._carriers: list[Thread] = []
        self._break: Timer | None = None
        self._ending: Thread | None = None

    def _carry(self, stream: Stream, messages: Iterable[bytes]) -> None:
        """Start the thread that brings in what comes on `stream`. Needs the lock."""
        name = f"florist-{stream.channel.name}"
        carrier = Thread(target=self._bring_in, args=(stream, messages), name=name, daemon=True)
        self._streams[stream.channel.name] = stream
        self._carriers.append(carrier)
        carrier.start()

    def _bring_in(self, stream: Stream, messages: Iterable[bytes]) -> None:
        incoming = stream.channel.incoming
        ended = False
        try:
            for data in messages:
                if ended:
                    self.fail(ProtocolViolation("the peer sent more after a channel's end"))
                elif data == END:
                    ended = True
                    incoming.end()
                else:
                    # Once the link is over here, the rest is read and dropped: the stream ends.
                    with suppress(FloristError):
                        incoming.put(data, self.check)
        except grpc.RpcError as error:
            self._stream_broke(stream, error)
        else:
            self._stream_ended(stream, in_order=ended)
        finally:
            stream.lose()
            with self._changed:
                self._changed.notify_all()

    def _stream_broke(self, stream: Stream, error: grpc.RpcError) -> None:
        """React to a stream that ended with an error of gRPC's."""
        raise NotImplementedError

    def _stream_ended(self, stream: Stream, *, in_order: bool) -> None:
        if not in_order:
            self._break_off(PeerLost(f"{self._peer_name} broke off the connection"))
        elif stream.channel.name == CONTROL:
            self._peer_has_closed()

    def _break_off(self, error: FloristError) -> None:
        """Fail with `error` in a moment, unless a better reason comes first."""
        with self._changed:
            if self.is_closed or self._break is not None:
                return
            self._break = Timer(GRACE, self.fail, [error])
            self._break.daemon = True
            self._break.start()

    def _end(self, *, in_order: bool) -> None:
        with self._changed:
            if self._ending is None:
                limit = LINGER if in_order else _FLUSH
                self._ending = Thread(
                    target=self._wind_up, args=(limit,), name="florist-end", daemon=True
                )
                self._ending.start()
        if self._closed:
            self._ending.join(LINGER + 3 * _FLUSH)

    def _wind_up(self, limit: float) -> None:
        """End all streams, `control` last; cut those that do not end in time; let go of gRPC."""
        deadline = time.monotonic() + limit
        failed = self._failure is not None
        with self._changed:
            streams = dict(self._streams)
        control = streams.pop(CONTROL, None)
        lanes = list(streams.values())
        _end_streams(lanes, deadline, drop=failed)
        if control is not None:
            _end_streams([control], deadline, drop=False)
            lanes.append(control)
        for stream in lanes:
            if not stream.finished.is_set():
                stream.cancel()
        if self._break is not None:
            self._break.cancel()
        until = time.monotonic() + _FLUSH
        for carrier in self._carriers:
            carrier.join(max(0.0, until - time.monotonic()))
        self._let_go()

    def _let_go(self) -> None:
        """Free what gRPC holds for this link."""
        raise NotImplementedError


def _end_streams(streams: list[Stream], deadline: float, *, drop: bool) -> None:
    for stream in streams:
        stream.end(drop=drop)
    for stream in streams:
        stream.finished.wait(max(0.0, deadline - time.monotonic()))


def shown(text: str | None) -> str:
    """What gRPC or the peer says, if anything."""
    return printable(text or "", 300)


class RateLimitedLog:
    """Passes a text on when it is new, and every so often when it is not."""

    def __init__(self, tell: Callable[[str], None] | None, every: float) -> None:
        self._tell = tell
        self._every = every
        self._last = ""
        self._told = 0.0

    def tell(self, text: str) -> None:
        now = time.monotonic()
        if self._tell is not None and (text != self._last or now - self._told >= self._every):
            self._last, self._told = text, now
            self._tell(text)
