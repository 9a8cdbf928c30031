"""The listening side of the link over the network, which is the active party's.

Lets in one peer, by the name in its certificate, and one session at a time.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Thread
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import unquote

import grpc

from florist.common.channel import codec
from florist.common.channel.channel import CONTROL
from florist.common.channel.grpc_streams import (
    CHANNEL,
    LINGER,
    OPTIONS,
    REPORT_EVERY,
    REQUIRED_TLS,
    SESSION,
    TLS,
    GrpcLink,
    Stream,
    Teller,
    shown,
)
from florist.common.errors import ConfigurationError, PeerLost, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import ParamSpec, TypeVar

    from florist.common.channel.channel import Link
    from florist.common.channel.credentials import Credentials
    from florist.common.channel.pipes import PipeChannel

    P = ParamSpec("P")
    T = TypeVar("T")

log = logging.getLogger("florist.transport")

_SESSION_NAME = re.compile(r"[0-9a-f]{32}")
_CHANNEL_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
#: Channels of one session; a peer that opens more is refused.
_MAX_CHANNELS = 32
#: Seconds after which a connection without a call is a failed handshake.
_SILENT_CONNECTION = 3.0

_OPTIONS = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class _Refusal(Exception):  # noqa: N818 - it ends a call
    """A call that is not taken, and why."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


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
        return self.is_over or self._peer_closed or self._break is not None

    def attach(self, name: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Stream:
        """Take a stream that the peer has opened."""
        with self._changed:
            if self.is_over:
                raise _Refusal(grpc.StatusCode.FAILED_PRECONDITION, "the session has ended")
            if name in self._streams:
                raise _Refusal(grpc.StatusCode.ALREADY_EXISTS, f"channel {name} is open already")
            if len(self._streams) >= _MAX_CHANNELS:
                raise _Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many channels")
            stream = Stream(self._find(name), context.cancel)
            if not context.add_callback(stream.finished.set):
                stream.finished.set()
            self._carry(stream, requests)
        self._peer_asked_for(name)
        return stream

    def await_own_side(self, stream: Stream) -> None:
        """Wait until this side has asked for the channel too, or never will."""
        with self._changed:
            while not (stream.channel.asked_here or self.is_over or stream.is_gone):
                self._changed.wait()

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
        self._link: _AcceptedLink | None = None
        self._link_is_new = False
        self._changed = Condition()
        #: When connections came that have made no call yet.
        self._silent: deque[float] = deque(maxlen=64)
        self._last_refusal = ""
        self._refused = Teller(lambda text: log.warning("%s", text), every=30.0)

    def start(self) -> str:
        """Listen; return the address with the port in use.

        Raises:
            ConfigurationError: the address cannot be had.
        """
        server = grpc.server(
            _DaemonThreads(),
            handlers=[_OneMethod(self._converse)],
            options=list(_OPTIONS),
            maximum_concurrent_rpcs=2 * _MAX_CHANNELS,
        )
        try:
            if self._credentials is None:
                log.warning("listening in plain text: anyone on the network can read and pretend")
                port = server.add_insecure_port(self._address)
            else:
                secure = self._credentials.for_listener(self._connection_came)
                port = server.add_secure_port(self._address, secure)
        except RuntimeError:
            reason = _why_not_bound(self._address)
            raise ConfigurationError(f"cannot listen at {self._address}: {reason}") from None
        server.start()
        self._server = server
        self._address = f"{self._address.rpartition(':')[0]}:{port}"
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
        teller = Teller(on_wait, REPORT_EVERY)
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
        except _Refusal as refusal:
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
        facts = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
        names = [shown(n.decode(errors="replace")) for n in facts.get("x509_common_name", ())]
        if names != [self._peer_name]:
            raise _Refusal(
                grpc.StatusCode.PERMISSION_DENIED,
                f"the certificate is that of {', '.join(map(repr, names)) or 'nobody'}, who is not "
                "the configured peer",
            )
        version = facts["ssl_tls_version"][0].decode()
        if version != REQUIRED_TLS:
            raise _Refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the connection uses {version}; TLS 1.3 is required",
            )
        return version

    def _admit(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> tuple[_AcceptedLink, Stream]:
        """Bring a stream to its session; `control` begins one."""
        metadata = dict(context.invocation_metadata())
        session, name = str(metadata.get(SESSION, "")), str(metadata.get(CHANNEL, ""))
        if not _SESSION_NAME.fullmatch(session) or not _CHANNEL_NAME.fullmatch(name):
            raise _Refusal(
                grpc.StatusCode.INVALID_ARGUMENT, "the call names no session or no channel"
            )
        with self._changed:
            if name == CONTROL:
                if self._link is not None:
                    raise _Refusal(
                        grpc.StatusCode.RESOURCE_EXHAUSTED, "another session is under way"
                    )
                link = _AcceptedLink(self._peer_name, session, self._session_over)
                stream = link.attach(name, requests, context)
                self._link, self._link_is_new = link, True
                self._last_refusal = ""
                self._changed.notify_all()
                return link, stream
            if self._link is None or self._link.session != session:
                raise _Refusal(grpc.StatusCode.FAILED_PRECONDITION, "there is no such session")
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


class _DaemonThreads(ThreadPoolExecutor):
    """A thread per call, none of which holds up the end of the process as a pool's would."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            future.set_result(fn(*args, **kwargs))  # gRPC's `fn` raises nothing

        Thread(target=run, name="florist-stream", daemon=True).start()
        return future


def _why_not_bound(address: str) -> str:
    """The reason, which gRPC does not give but an attempt by hand does."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(name)
            attempt.listen()
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC refuses it; check the certificate and the key too"
