"""Hand-written HTTP/2 over TLS, for bytes that no gRPC client would send."""

from __future__ import annotations

import socket
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from florist.common.transport.credentials import Credentials

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, body: bytes, length: int | None = None) -> bytes:
    """One frame; `length` is what it says of itself, if that is a lie."""
    declared = len(body) if length is None else length
    return struct.pack(">I", declared)[1:] + struct.pack(">BBI", kind, flags, stream) + body


def call(method: str, stream: int = 1, **metadata: str) -> bytes:
    """The headers that begin a gRPC call."""
    headers = {
        ":method": "POST",
        ":scheme": "https",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    } | {key.replace("_", "-"): value for key, value in metadata.items()}
    # Literal fields without an index, whose lengths fit into one byte each.
    block = b"".join(
        bytes([0, len(key)]) + key.encode() + bytes([len(value)]) + value.encode()
        for key, value in headers.items()
    )
    return frame(HEADERS, END_HEADERS, stream, block)


def message(body: bytes, length: int | None = None, *, compressed: int = 0) -> bytes:
    """A gRPC message; `length` is what it says of itself, if that is a lie."""
    return struct.pack(">BI", compressed, len(body) if length is None else length) + body


@contextmanager
def connected(address: str, files: Credentials, peer: str) -> Iterator[ssl.SSLSocket]:
    """A TLS line to a service, on which nothing has been said."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        files.context().wrap_socket(plain, server_hostname=peer) as line,
    ):
        line.settimeout(10)
        yield line


def read_to_end(line: ssl.SSLSocket, most: int = 1 << 20) -> bytes:
    """What the service says until it closes, or until nothing comes for a while."""
    line.settimeout(2)
    heard = b""
    try:
        while len(heard) < most and (more := line.recv(1 << 16)):
            heard += more
    except OSError:
        pass
    return heard
