"""The base of both sides of the network link: channels as gRPC streams.

Each channel is one bidirectional gRPC stream of encoded messages; its metadata names the session
and the channel. Conventions on top of gRPC:

* An empty message closes a channel in one direction. (A gRPC server cannot close its side of a
  stream without closing the other side too.)
* A stream that ends after the empty message was closed normally. One that ends without it was lost.
  `control` opens first and closes last.
* A loss is reported after a short delay, so that the peer's own reason, which arrives on `control`
  at about the same time, takes precedence.

Each channel uses two threads: one of gRPC's that reads the outgoing pipe, and one of ours that
fills the incoming pipe. Both pipes are short, so a peer that does not read blocks the sender.
"""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Thread, Timer
from typing import TYPE_CHECKING

import grpc

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import FloristError, PeerLost, ProtocolViolation
from florist.common.core.text import printable
from florist.common.transport.channel import CONTROL
from florist.common.transport.messages import MAX_MESSAGE_BYTES
from florist.common.transport.pipes import GRACE, PipeLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from florist.common.core.clock import Clock
    from florist.common.transport.pipes import PipeChannel

#: Closes a channel in one direction.
END = b""

#: Keys of a stream's metadata: the dialer sends the first two, the listener the third.
SESSION = "florist-session"
CHANNEL = "florist-channel"
TLS = "florist-tls"

REQUIRED_TLS = "TLSv1.3"

#: Messages queued in each direction of a channel, on each side.
_CAPACITY = 4
#: Seconds for sent messages to arrive: after `close`, and after a failure.
LINGER = 5.0
_FLUSH = 1.0
#: Seconds between two reports of the same reason for waiting.
REPORT_EVERY = 5.0

# Detects a lost or frozen peer within 8 s: 4 s of silence before a ping, 4 s for the reply. gRPC
# limits the reply by `ping_timeout` and a broken network by `keepalive_timeout`. The pings with
# which gRPC measures bandwidth are off: on a slow network, their replies queue behind data for
# longer than that. Any incoming data suppresses pings, so heartbeats keep a session alive there.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 4000),
    ("grpc.keepalive_timeout_ms", 4000),
    ("grpc.http2.ping_timeout_ms", 4000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.bdp_probe", 0),
)
# Unread data per stream; this allows 40 MB/s at a round-trip time of 100 ms.
_WINDOW = (("grpc.http2.lookahead_bytes", MAX_MESSAGE_BYTES),)
# A little above our own limit: a message that is just too large gets the codec's clear error.
_LONGEST = MAX_MESSAGE_BYTES + 64 * 1024
_SIZES = (
    ("grpc.max_receive_message_length", _LONGEST),
    ("grpc.max_send_message_length", _LONGEST),
)
#: gRPC options of both sides.
OPTIONS = (*_KEEPALIVE, *_WINDOW, *_SIZES)


class _Gone(Exception):  # noqa: N818 - it ends a loop
    """The stream has ended."""


class Stream:
    """One side of a channel's gRPC stream."""

    def __init__(self, channel: PipeChannel, cancel: Callable[[], object] = lambda: None) -> None:
        self.channel = channel
        self.cancel = cancel
        #: Set when gRPC has finished the call.
        self.finished = Event()
        #: Whether the stream has ended, so that nothing can be sent.
        self.is_gone = False
        self._may_end = Event()

    def outgoing(self, link: PipeLink) -> Iterator[bytes]:
        """The messages to send, until this side of the stream ends."""
        with suppress(_Gone):
            while (data := self.channel.outgoing.get(self._check)) is not None:
                yield data
            if link.failure is None:
                yield END
                self._may_end.wait()  # keep the other direction open until the link or stream ends

    def end(self, *, drop: bool) -> None:
        """End this side after the queued messages or, with `drop`, at once."""
        self.channel.outgoing.end(drop=drop)
        self._may_end.set()

    def mark_ended(self) -> None:
        """Note that the stream has ended."""
        self.is_gone = True
        self.channel.outgoing.wake()
        self._may_end.set()

    def _check(self) -> None:
        if self.is_gone:
            raise _Gone


class GrpcLink(PipeLink):
    """The base class of both sides of the network link."""

    def __init__(self, peer_name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(_CAPACITY, clock=clock)
        self._peer_name = peer_name
        self._streams: dict[str, Stream] = {}
        self._readers: list[Thread] = []
        #: Reports a lost connection after `GRACE` seconds.
        self._loss: Timer | None = None
        self._ending: Thread | None = None

    def _start_reading(self, stream: Stream, messages: Iterable[bytes]) -> None:
        """Start the thread that reads the messages of `stream`. The caller holds the lock."""
        name = f"florist-{stream.channel.name}"
        reader = Thread(target=self._read, args=(stream, messages), name=name, daemon=True)
        self._streams[stream.channel.name] = stream
        self._readers.append(reader)
        reader.start()

    def _read(self, stream: Stream, messages: Iterable[bytes]) -> None:
        incoming = stream.channel.incoming
        ended = False
        try:
            for data in messages:
                if ended:
                    self.fail(
                        ProtocolViolation("the peer sent a message on a channel that it had closed")
                    )
                elif data == END:
                    ended = True
                    incoming.end()
                else:
                    # Once the link is closed here, the rest is read and dropped until the end.
                    with suppress(FloristError):
                        incoming.put(data, self.check)
        except grpc.RpcError as error:
            self._stream_failed(stream, error)
        else:
            self._stream_ended(stream, in_order=ended)
        finally:
            stream.mark_ended()
            with self._changed:
                self._changed.notify_all()

    def _stream_failed(self, stream: Stream, error: grpc.RpcError) -> None:
        """Handle a stream that ended with a gRPC error."""
        raise NotImplementedError

    def _stream_ended(self, stream: Stream, *, in_order: bool) -> None:
        if not in_order:
            self._fail_soon(PeerLost(f"{self._peer_name} ended the connection unexpectedly"))
        elif stream.channel.name == CONTROL:
            self._peer_has_closed()

    def _fail_soon(self, error: FloristError) -> None:
        """Fail with `error` after `GRACE` seconds, unless a better reason arrives first."""
        with self._changed:
            if self.is_closed or self._loss is not None:
                return
            self._loss = Timer(GRACE, self.fail, [error])
            self._loss.daemon = True
            self._loss.start()

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
        """End all streams, `control` last; cancel those that do not end in time; release gRPC."""
        deadline = time.monotonic() + limit
        failed = self._failure is not None
        with self._changed:
            streams = dict(self._streams)
        control = streams.pop(CONTROL, None)
        ending = list(streams.values())
        _end_streams(ending, deadline, drop=failed)
        if control is not None:
            _end_streams([control], deadline, drop=False)
            ending.append(control)
        for stream in ending:
            if not stream.finished.is_set():
                stream.cancel()
        if self._loss is not None:
            self._loss.cancel()
        until = time.monotonic() + _FLUSH
        for reader in self._readers:
            reader.join(max(0.0, until - time.monotonic()))
        self._release()

    def _release(self) -> None:
        """Release the gRPC resources of this link."""
        raise NotImplementedError


def _end_streams(streams: list[Stream], deadline: float, *, drop: bool) -> None:
    for stream in streams:
        stream.end(drop=drop)
    for stream in streams:
        stream.finished.wait(max(0.0, deadline - time.monotonic()))


def shown(text: str | None) -> str:
    """Text from gRPC or from the peer, made safe to print."""
    return printable(text or "", 300)
