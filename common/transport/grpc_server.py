"""The base of both listening sides: the port, and the check of who calls."""

from __future__ import annotations

import logging
import resource
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, cast

import grpc

from florist.common.core.errors import ConfigurationError
from florist.common.transport.grpc_streams import OPTIONS, REQUIRED_TLS
from florist.common.transport.peer_identity import read_identity
from florist.common.transport.reserved_connections import ReservedConnections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from florist.common.transport.credentials import Credentials

log = logging.getLogger("florist.transport")

#: Seconds for a new connection to complete the TLS and HTTP/2 handshakes.
HANDSHAKE = 10.0
#: The maximum number of connections to one listener. The peer needs one or two, but until the
#: handshake is complete anyone may hold the others.
_MAX_CONNECTIONS = 256


def max_connections() -> int:
    """The maximum number of connections to one listener, given how many files may be open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(16, files // 4))


def server_options(calls: int, idle: float | None = None) -> list[tuple[str, int]]:
    """The gRPC options of a listening side.

    gRPC would apply `maximum_concurrent_rpcs` before this party knows who calls, so that a stranger
    could use it up. The number of calls is therefore limited for each connection.

    Args:
        calls: the maximum number of concurrent calls of one connection.
        idle: seconds without a call after which a connection is closed; None keeps it.
    """
    return [
        *OPTIONS,
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE * 1000)),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_allowed_incoming_connections", max_connections()),
        ("grpc.max_concurrent_streams", calls),
        *([] if idle is None else [("grpc.max_connection_idle_ms", round(idle * 1000))]),
    ]


class ListeningServer(ABC):
    """A server of one peer, which is started and closed by a `with` statement.

    Half of its connections are reserved for the peer.
    """

    def __init__(self) -> None:
        self._connections = ReservedConnections(max_connections() // 2)

    @abstractmethod
    def start(self) -> str:
        """Start listening; return the address with the actual port.

        Raises:
            ConfigurationError: the address cannot be used.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop listening. Takes seconds at most."""

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

    def _identify(
        self, context: grpc.ServicerContext, credentials: Credentials | None, peer_name: str
    ) -> str:
        """As `identify`; the connection is then one of the peer's, or is closed soon."""
        try:
            version = identify(context, credentials, peer_name)
        except CallerRejected:
            self._connections.refused(context.peer())
            raise
        self._connections.admitted(context.peer())
        return version


class CallRefused(Exception):  # noqa: N818 - it ends a call
    """A call is refused, with a gRPC status and a reason for the caller."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def kind(self) -> str:
        """Identifies refusals for the same reason, for the log."""
        return f"{type(self).__name__} {self.code.name}"


class CallerRejected(CallRefused):
    """The caller is not the peer, or its connection is not good enough to tell."""


def bind(
    server: grpc.Server,
    address: str,
    credentials: Credentials | None,
    on_connection: Callable[[], None] = lambda: None,
) -> str:
    """Bind a server to an address; return the address with the actual port.

    Args:
        server: a server that is not started yet.
        address: `host:port`; port 0 chooses a free port.
        credentials: None listens without TLS and admits anyone.
        on_connection: called at the start of each connection.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    try:
        if credentials is None:
            log.warning("TLS is off: the connection is readable and unauthenticated")
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials.for_listener(on_connection))
    except RuntimeError:
        reason = _why_not_bound(address)
        raise ConfigurationError(f"cannot listen on {address}: {reason}") from None
    return f"{address.rpartition(':')[0]}:{port}"


def port_of(address: str) -> int:
    """The port in an address that `bind` returned."""
    return int(address.rpartition(":")[2])


def identify(context: grpc.ServicerContext, credentials: Credentials | None, peer_name: str) -> str:
    """The TLS version of a call, after checking that its certificate is the peer's.

    Args:
        context: the call.
        credentials: None admits anyone, without TLS.
        peer_name: the required common name.

    Raises:
        CallerRejected: the certificate is not the peer's, or the connection does not use TLS 1.3.
    """
    if credentials is None:
        return "none"
    version = require_tls(context)
    pem = _facts(context).get("x509_pem_cert", (b"",))[0]
    problem = read_identity(pem).problem(peer_name, credentials.peer_key_sha256)
    if problem is not None:
        raise CallerRejected(
            grpc.StatusCode.PERMISSION_DENIED, f"{problem}, not to the configured peer"
        )
    return version


def require_tls(context: grpc.ServicerContext) -> str:
    """The TLS version of a call, whoever makes it.

    Raises:
        CallerRejected: the connection does not use TLS 1.3.
    """
    version = _facts(context)["ssl_tls_version"][0].decode()
    if version != REQUIRED_TLS:
        raise CallerRejected(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the connection uses {version}; TLS 1.3 is required",
        )
    return version


def _facts(context: grpc.ServicerContext) -> Mapping[str, Sequence[bytes]]:
    return cast("Mapping[str, Sequence[bytes]]", context.auth_context())


def _why_not_bound(address: str) -> str:
    """The reason why an address cannot be used, which gRPC does not report."""
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
    return "gRPC rejected it; check also the certificate and the key"
