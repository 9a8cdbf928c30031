"""The listening side of the link over the network, which is the active party's.

Lets in one peer, by the name in its certificate, and one session at a time.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

import grpc

from florist.common.core.errors import PeerLost, TransportError
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.daemon_pool import DaemonPool
from florist.common.transport.grpc_server import SERVER_OPTIONS, Refusal, bind, identify
from florist.common.transport.grpc_streams import (
    CHANNEL,
    LINGER,
    REPORT_EVERY,
    SESSION,
    TLS,
    GrpcLink,
    RateLimitedLog,
    Stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials
    from florist.common.transport.pipes import PipeChannel

log = logging.getLogger("florist.transport")

_SESSION_NAME = re.compile(r"[0-9a-f]{32}")
_CHANNEL_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
#: Channels of one session; a peer that opens more is refused.
_MAX_CHANNELS = 32
#: Seconds after which a connection without a call is a failed handshake.
_SILENT_CONNECTION = 3.0


class _AcceptedLink(GrpcLink):
    """The listening side of a session."""

    def __init__(
        self, peer_name: str, session: str, let_go: Callable[[_AcceptedLink], None]
    ) -> None:
        super().__init__(peer_name)
        self.session = session
        self._tell_let_go = let_go

    @property
    def is_gone(self) -> bool:
        """Whether there is nobody at the other end any more."""
        return self.is_closed or self._peer_closed or self._break is not None

    def attach(self, name: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Stream:
        """Take a stream that the peer has opened."""
        with self._changed:
            if self.is_closed:
                raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "the session has ended")
            if name in self._streams:
                raise Refusal(grpc.StatusCode.ALREADY_EXISTS, f"channel {name} is open already")
            if len(self._streams) >= _MAX_CHANNELS:
                raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many channels")
            stream = Stream(self._find(name), context.cancel)
            if not context.add_callback(lambda: self._finished(stream)):
                stream.finished.set()
            self._carry(stream, requests if name == CONTROL else self._when_asked(stream, requests))
        self._peer_asked_for(name)
        return stream

    def await_own_side(self, stream: Stream) -> None:
        """Wait until this side has asked for the channel too, or never will."""
        with self._changed:
            while not (stream.channel.asked_here or self.is_closed or stream.finished.is_set()):
                self._changed.wait()

    def _when_asked(self, stream: Stream, requests: Iterator[bytes]) -> Iterator[bytes]:
        """What comes on a channel; nothing is read before this side has asked for it too.

        So a peer that opens channels for which there is no use fills no memory here.
        """
        self.await_own_side(stream)
        yield from requests

    def _finished(self, stream: Stream) -> None:
        stream.finished.set()
        with self._changed:
            self._changed.notify_all()

    def _announce(self, channel: PipeChannel) -> None:
        """Nothing to do: `await_own_side` has been woken."""

    def _stream_broke(self, stream: Stream, error: grpc.RpcError) -> None:  # noqa: ARG002
        # On this side gRPC's error has no content.
        self._break_off(
            PeerLost(f"the connection to {self._peer_name} broke (channel {stream.channel.name})")
        )

    def _let_go(self) -> None:
        self._tell_let_go(self)


class GrpcListener:
    """Waits for the peer, one session at a time. Use as a context, or close it."""

    def __init__(self, address: str, credentials: Credentials | None, peer_name: str) -> None:
        """Nothing happens before `start`.

        Args:
            address: `host:port` to listen at; port 0 takes a free one.
            credentials: None listens in plain text, and to anyone.
            peer_name: the common name of the one certificate that is let in.
        """
        self._address = address
        self._credentials = credentials
        self._peer_name = peer_name
        self._server: grpc.Server | None = None
        self._pool = DaemonPool(2 * _MAX_CHANNELS)
        self._link: _AcceptedLink | None = None
        self._link_is_new = False
        self._changed = Condition()
        #: When connections came that have made no call yet.
        self._silent: deque[float] = deque(maxlen=64)
        self._last_refusal = ""
        self._refused = RateLimitedLog(lambda text: log.warning("%s", text), every=30.0)

    def start(self) -> str:
        """Listen; return the address with the port in use.

        Raises:
            ConfigurationError: the address cannot be had.
        """
        server = grpc.server(
            self._pool,
            handlers=[_OneMethod(self._converse)],
            options=list(SERVER_OPTIONS),
            maximum_concurrent_rpcs=2 * _MAX_CHANNELS,
        )
        self._address = bind(server, self._address, self._credentials, self._connection_came)
        server.start()
        self._server = server
        return self._address

    def accept(self, timeout: float, on_wait: Callable[[str], None] | None = None) -> Link:
        """The link to the peer, once it has connected.

        Args:
            timeout: seconds.
            on_wait: hears why it takes so long: on news, and every few seconds.

        Raises:
            TransportError: the peer did not come in time.
        """
        deadline = time.monotonic() + timeout
        teller = RateLimitedLog(on_wait, REPORT_EVERY)
        while (link := self._new_link(min(1.0, deadline - time.monotonic()))) is None:
            self._report_silent_connections()
            refusal = f"; last refused: {self._last_refusal}" if self._last_refusal else ""
            if time.monotonic() >= deadline:
                raise TransportError(
                    f"{self._peer_name} did not connect to {self._address} within {timeout:g} s"
                    + refusal
                )
            teller.tell(f"{self._peer_name} has not connected to {self._address} yet{refusal}")
        return link

    def close(self) -> None:
        """End the session, if there is one, and stop listening. Takes seconds at most."""
        if self._link is not None:
            self._link.close()
        if self._server is not None:
            self._server.stop(None).wait(LINGER)
            self._pool.shutdown()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _new_link(self, timeout: float) -> _AcceptedLink | None:
        with self._changed:
            self._changed.wait_for(lambda: self._link_is_new, max(0.0, timeout))
            if not self._link_is_new:
                return None
            self._link_is_new = False
            link = self._link
        if link is not None and link.is_gone:
            link.close()  # it came and went while nobody waited here
            return None
        return link

    def _converse(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Serve one stream of the peer's."""
        self._silent.clear()
        try:
            tls = self._identify(context)
            link, stream = self._admit(requests, context)
        except Refusal as refusal:
            self._last_refusal = refusal.reason
            self._refused.tell(f"refused {unquote(context.peer())}: {refusal.reason}")
            context.abort(refusal.code, refusal.reason)
        if stream.channel.name != CONTROL:
            link.await_own_side(stream)
        context.send_initial_metadata(((TLS, tls),))
        yield from stream.outgoing(link)

    def _identify(self, context: grpc.ServicerContext) -> str:
        """The TLS version, when the certificate is the peer's."""
        if self._credentials is None:
            return "none"
        return identify(context, self._peer_name)

    def _admit(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> tuple[_AcceptedLink, Stream]:
        """Bring a stream to its session; `control` begins one."""
        metadata = dict(context.invocation_metadata())
        session, name = str(metadata.get(SESSION, "")), str(metadata.get(CHANNEL, ""))
        if not _SESSION_NAME.fullmatch(session) or not _CHANNEL_NAME.fullmatch(name):
            raise Refusal(
                grpc.StatusCode.INVALID_ARGUMENT, "the call names no session or no channel"
            )
        with self._changed:
            if name == CONTROL:
                if self._link is not None:
                    raise Refusal(
                        grpc.StatusCode.RESOURCE_EXHAUSTED, "another session is under way"
                    )
                link = _AcceptedLink(self._peer_name, session, self._session_over)
                stream = link.attach(name, requests, context)
                self._link, self._link_is_new = link, True
                self._last_refusal = ""
                self._changed.notify_all()
                return link, stream
            if self._link is None or self._link.session != session:
                raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "there is no such session")
            link = self._link
        return link, link.attach(name, requests, context)

    def _session_over(self, link: _AcceptedLink) -> None:
        with self._changed:
            if self._link is link:
                self._link, self._link_is_new = None, False

    def _connection_came(self) -> None:
        self._silent.append(time.monotonic())

    def _report_silent_connections(self) -> None:
        """Warn of handshakes that failed: gRPC does not say, but no call follows them."""
        if self._silent and time.monotonic() - self._silent[0] > _SILENT_CONNECTION:
            self._silent.clear()
            self._last_refusal = (
                "a connection that ended in its TLS handshake: no certificate, one of another "
                "authority, an expired one, plain text, or a mere look at the port (gRPC's own "
                "line on standard error has the reason)"
            )
            self._refused.tell(f"refused {self._last_refusal}")


class _OneMethod(grpc.GenericRpcHandler):
    """Routes our one method; the bytes go through as they are, to our own codec."""

    def __init__(
        self, behaviour: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]
    ) -> None:
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            behaviour
        )

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handler if handler_call_details.method == codec.METHOD else None
