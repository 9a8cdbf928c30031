"""What every listening side has in common: its port, and who may call."""

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

#: gRPC's settings of a listening side.
SERVER_OPTIONS = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class Refusal(Exception):  # noqa: N818 - it ends a call
    """A call that is not taken, and why."""

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
    """Give a server its port; the address with the port in use (0 takes a free one).

    Args:
        server: not started yet.
        address: `host:port`.
        credentials: None listens in plain text, and to anyone.
        on_connection: hears of each connection as it begins.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    try:
        if credentials is None:
            log.warning("listening in plain text: anyone on the network can read and pretend")
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials.for_listener(on_connection))
    except RuntimeError:
        reason = _why_not_bound(address)
        raise ConfigurationError(f"cannot listen at {address}: {reason}") from None
    return f"{address.rpartition(':')[0]}:{port}"


def identify(context: grpc.ServicerContext, peer_name: str) -> str:
    """The TLS version of a call, when its certificate is the peer's.

    Raises:
        Refusal: it is another's, or the connection is not one of TLS 1.3.
    """
    facts = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
    names = [shown(n.decode(errors="replace")) for n in facts.get("x509_common_name", ())]
    if names != [peer_name]:
        raise Refusal(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate is that of {', '.join(map(repr, names)) or 'nobody'}, who is not "
            "the configured peer",
        )
    version = facts["ssl_tls_version"][0].decode()
    if version != REQUIRED_TLS:
        raise Refusal(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the connection uses {version}; TLS 1.3 is required",
        )
    return version


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
