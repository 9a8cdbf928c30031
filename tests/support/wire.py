"""A relay on a TCP line that keeps every byte, and reads gRPC's messages out of HTTP/2."""

from __future__ import annotations

import socket
import struct
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DATA = 0


@dataclass
class Wire:
    """What went through."""

    address: str
    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)

    @property
    def bytes_both_ways(self) -> bytes:
        return bytes(self.sent + self.received)

    def messages(self) -> tuple[list[bytes], list[bytes]]:
        """All messages of each direction, in order; connections without a call are left out."""
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        return _messages(bytes(self.sent).replace(preface, b"")), _messages(bytes(self.received))


def _messages(data: bytes) -> list[bytes]:
    streams: dict[int, bytearray] = {}
    while data:
        length, kind, flags = int.from_bytes(data[:3]), data[3], data[4]
        stream = int.from_bytes(data[5:9])
        body, data = data[9 : 9 + length], data[9 + length :]
        if kind == _DATA:
            assert not flags & 8, "padding is not expected"
            streams.setdefault(stream, bytearray()).extend(body)
    found = []
    for content in streams.values():
        while content:
            compressed, length = struct.unpack(">BI", content[:5])
            assert not compressed
            found.append(bytes(content[5 : 5 + length]))
            del content[: 5 + length]
    return found


@contextmanager
def recorded(address: str) -> Iterator[Wire]:
    """A relay to `address`; the last connection's bytes are kept."""
    host, _, port = address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    wire = Wire(f"127.0.0.1:{listener.getsockname()[1]}")

    ends: list[socket.socket] = []
    threads: list[Thread] = []

    def carry(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                ends.extend((near, far))
                sent, received = bytearray(), bytearray()
                wire.sent, wire.received = sent, received
                start(carry, near, far, sent)
                start(carry, far, near, received)

    def start(work: Callable[..., None], *arguments: object) -> None:
        threads.append(Thread(target=work, args=arguments, daemon=True))
        threads[-1].start()

    start(accept)
    try:
        yield wire
    finally:
        for end in (listener, *ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
        for end in (listener, *ends):
            end.close()
