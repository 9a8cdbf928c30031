"""The listening side of the network link, used by the active party.

It admits one peer, identified by the name in its certificate, and one session at a time.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING
from urllib.parse import unquote

import grpc

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import PeerLost, TransportError
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.daemon_pool import DaemonPool
from florist.common.transport.grpc_server import (
    CallRefused,
    ListeningServer,
    bind,
    port_of,
    server_options,
)
from florist.common.transport.grpc_streams import (
    CHANNEL,
    LINGER,
    REPORT_EVERY,
    SESSION,
    TLS,
    GrpcLink,
    Stream,
)
from florist.common.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.core.clock import Clock
    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials
    from florist.common.transport.pipes import PipeChannel

log = logging.getLogger("florist.transport")

_SESSION_NAME = re.compile(r"[0-9a-f]{32}")
_CHANNEL_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
#: The maximum number of channels in a session.
_MAX_CHANNELS = 32
#: Seconds after which a connection without a call counts as a failed handshake.
_SILENT_CONNECTION = 3.0
#: Seconds without a call after which a connection is closed; those of a session have calls.
_IDLE_CONNECTION = 20.0


class _AcceptedLink(GrpcLink):
    """The listening side of a session."""

    def __init__(
        self,
        peer_name: str,
        session: str,
        on_release: Callable[[_AcceptedLink], None],
        clock: Clock,
    ) -> None:
        super().__init__(peer_name, clock)
        self.session = session
        self._on_release = on_release

    @property
    def is_gone(self) -> bool:
        """Whether the peer is no longer connected."""
        return self.is_closed or self._peer_closed or self._loss is not None

    def attach(self, name: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Stream:
        """Accept a stream that the peer has opened."""
        with self._changed:
            if self.is_closed:
                raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "the session has ended")
            if name in self._streams:
                raise CallRefused(grpc.StatusCode.ALREADY_EXISTS, f"channel {name} is already open")
            if len(self._streams) >= _MAX_CHANNELS:
                raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many channels")
            stream = Stream(self._find(name), context.cancel)
            if not context.add_callback(lambda: self._finished(stream)):
                stream.finished.set()
            messages = requests if name == CONTROL else self._once_opened(stream, requests)
            self._start_reading(stream, messages)
        self._peer_opened(name)
        return stream

    def await_own_side(self, stream: Stream) -> None:
        """Wait until this side opens the channel too, or the link or the stream ends."""
        with self._changed:
            while not (stream.channel.opened_here or self.is_closed or stream.finished.is_set()):
                self._changed.wait()

    def _once_opened(self, stream: Stream, requests: Iterator[bytes]) -> Iterator[bytes]:
        """The messages of a channel; nothing is read before this side opens the channel too.

        A peer that opens unused channels therefore cannot fill this party's memory.
        """
        self.await_own_side(stream)
        yield from requests

    def _finished(self, stream: Stream) -> None:
        stream.finished.set()
        with self._changed:
            self._changed.notify_all()

    def _announce(self, channel: PipeChannel) -> None:
        """Nothing to do: `await_own_side` is notified."""

    def _stream_failed(self, stream: Stream, error: grpc.RpcError) -> None:  # noqa: ARG002
        # On the listening side, gRPC's error has no details.
        self._fail_soon(
            PeerLost(
                f"the connection to {self._peer_name} was lost (channel {stream.channel.name})"
            )
        )

    def _release(self) -> None:
        self._on_release(self)


class GrpcListener(ListeningServer):
    """Accepts the peer, one session at a time. Use it as a context manager, or close it."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None,
        peer_name: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a listener; `start` opens the port.

        Args:
            address: `host:port` to listen on; port 0 chooses a free port.
            credentials: None listens without TLS and admits anyone.
            peer_name: the common name of the only certificate that is admitted.
            clock: the clock for timeouts.
        """
        super().__init__()
        self._address = address
        self._credentials = credentials
        self._peer_name = peer_name
        self._clock = clock
        self._server: grpc.Server | None = None
        self._pool = DaemonPool(2 * _MAX_CHANNELS)
        self._link: _AcceptedLink | None = None
        self._link_is_new = False
        self._changed = Condition()
        #: The times of connections that have not made a call yet.
        self._silent: deque[float] = deque(maxlen=64)
        self._last_refusal = ""
        self._refused = RateLimitedLog(lambda text: log.warning("%s", text), 30.0, clock)

    def start(self) -> str:
        server = grpc.server(
            self._pool,
            handlers=[_OneMethod(self._converse)],
            options=server_options(2 * _MAX_CHANNELS, _IDLE_CONNECTION),
        )
        self._address = bind(server, self._address, self._credentials, self._connected)
        server.start()
        self._server = server
        self._connections.start(port_of(self._address))
        return self._address

    def accept(self, timeout: float, on_wait: Callable[[str], None] | None = None) -> Link:
        """Wait for the peer to connect.

        Args:
            timeout: seconds to wait.
            on_wait: called with the reason for waiting, when it changes and every few seconds.

        Raises:
            TransportError: the peer did not connect in time.
        """
        deadline = self._clock.now() + timeout
        waiting = RateLimitedLog(on_wait, REPORT_EVERY, self._clock)
        while (link := self._new_link(min(1.0, deadline - self._clock.now()))) is None:
            self._report_silent_connections()
            refusal = f"; last refused: {self._last_refusal}" if self._last_refusal else ""
            if self._clock.now() >= deadline:
                raise TransportError(
                    f"{self._peer_name} did not connect to {self._address} within {timeout:g} s"
                    + refusal
                )
            waiting.tell(f"{self._peer_name} has not connected to {self._address} yet{refusal}")
        return link

    def close(self) -> None:
        """Close the session, if there is one, and stop listening. Takes seconds at most."""
        self._connections.close()
        if self._link is not None:
            self._link.close()
        if self._server is not None:
            self._server.stop(None).wait(LINGER)
            self._pool.shutdown()

    def _new_link(self, timeout: float) -> _AcceptedLink | None:
        with self._changed:
            if not self._link_is_new and timeout > 0:
                self._clock.wait_on(self._changed, timeout)
            if not self._link_is_new:
                return None
            self._link_is_new = False
            link = self._link
        if link is not None and link.is_gone:
            link.close()  # the peer disconnected before `accept` was called
            return None
        return link

    def _converse(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Serve one stream of the peer."""
        self._silent.clear()
        try:
            tls = self._identify(context, self._credentials, self._peer_name)
            link, stream = self._admit(requests, context)
        except CallRefused as refusal:
            self._last_refusal = refusal.reason
            self._refused.tell(f"refused {unquote(context.peer())}: {refusal.reason}", refusal.kind)
            context.abort(refusal.code, refusal.reason)
        if stream.channel.name != CONTROL:
            link.await_own_side(stream)
        context.send_initial_metadata(((TLS, tls),))
        yield from stream.outgoing(link)

    def _admit(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> tuple[_AcceptedLink, Stream]:
        """Attach a stream to its session; the stream of `control` starts a new session."""
        metadata = dict(context.invocation_metadata())
        session, name = str(metadata.get(SESSION, "")), str(metadata.get(CHANNEL, ""))
        if not _SESSION_NAME.fullmatch(session) or not _CHANNEL_NAME.fullmatch(name):
            raise CallRefused(
                grpc.StatusCode.INVALID_ARGUMENT, "the call does not name a session and a channel"
            )
        with self._changed:
            if name == CONTROL:
                if self._link is not None:
                    raise CallRefused(
                        grpc.StatusCode.RESOURCE_EXHAUSTED, "another session is active"
                    )
                link = _AcceptedLink(self._peer_name, session, self._session_ended, self._clock)
                stream = link.attach(name, requests, context)
                self._link, self._link_is_new = link, True
                self._last_refusal = ""
                self._changed.notify_all()
                return link, stream
            if self._link is None or self._link.session != session:
                raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "unknown session")
            link = self._link
        return link, link.attach(name, requests, context)

    def _session_ended(self, link: _AcceptedLink) -> None:
        with self._changed:
            if self._link is link:
                self._link, self._link_is_new = None, False

    def _connected(self) -> None:
        self._silent.append(self._clock.now())
        self._connections.connected()

    def _report_silent_connections(self) -> None:
        """Warn of failed handshakes: gRPC does not report them, but no call follows them."""
        if self._silent and self._clock.now() - self._silent[0] > _SILENT_CONNECTION:
            self._silent.clear()
            self._last_refusal = (
                "a connection that ended during the TLS handshake: no certificate, a certificate "
                "of another authority, an expired certificate, a wrong clock here or there, no "
                "TLS, or a port scan (gRPC logs the reason on standard error)"
            )
            self._refused.tell(f"refused {self._last_refusal}")


class _OneMethod(grpc.GenericRpcHandler):
    """Routes the only method; messages stay bytes, because the codec decodes them."""

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
