"""The base of both listening sides: the port, and the check of who calls."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, cast

import grpc

from florist.common.core.errors import ConfigurationError
from florist.common.transport.grpc_streams import OPTIONS, REQUIRED_TLS, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from florist.common.transport.credentials import Credentials

log = logging.getLogger("florist.transport")

#: gRPC options of a listening side.
SERVER_OPTIONS = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class CallRefused(Exception):  # noqa: N818 - it ends a call
    """A call is refused, with a gRPC status and a reason for the caller."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


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


def identify(context: grpc.ServicerContext, peer_name: str) -> str:
    """The TLS version of a call, after checking that its certificate is the peer's.

    Raises:
        CallRefused: the certificate is not the peer's, or the connection does not use TLS 1.3.
    """
    facts = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
    names = [shown(n.decode(errors="replace")) for n in facts.get("x509_common_name", ())]
    if names != [peer_name]:
        raise CallRefused(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate belongs to {', '.join(map(repr, names)) or 'nobody'}, not to the "
            "configured peer",
        )
    version = facts["ssl_tls_version"][0].decode()
    if version != REQUIRED_TLS:
        raise CallRefused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the connection uses {version}; TLS 1.3 is required",
        )
    return version


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
