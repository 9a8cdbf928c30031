"""Pairs of links, over each transport, for tests that hold for all of them."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from florist.common.transport.grpc_dialer import dial, pinned_channel
from florist.common.transport.grpc_listener import GrpcListener
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.tls_probe import probe
from tests.support.certificates import ACTIVE, PASSIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials

#: Seconds that nothing in a test should need.
PATIENCE = 20.0


def free_address() -> str:
    """Where nothing listens, and something soon may."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def open_channel(address: str, credentials: Credentials | None, peer_name: str) -> grpc.Channel:
    """A gRPC channel to the party that listens at `address`."""
    certificate = probe(address, credentials, peer_name, PATIENCE)
    return pinned_channel(address, credentials, peer_name, certificate)


@contextmanager
def in_memory_links() -> Iterator[tuple[Link, Link]]:
    left, right = linked_pair(capacity=4, grace=0.3)
    try:
        yield left, right
    finally:
        left.close()
        right.close()


@contextmanager
def listening(
    credentials: Credentials | None = None, address: str = "127.0.0.1:0"
) -> Iterator[tuple[GrpcListener, str]]:
    """The active party's listener, and where it listens."""
    listener = GrpcListener(address, credentials, PASSIVE)
    try:
        yield listener, listener.start()
    finally:
        listener.close()


@contextmanager
def grpc_links(
    active: Credentials | None = None, passive: Credentials | None = None
) -> Iterator[tuple[Link, Link]]:
    """The listening and the dialing end, over a real socket."""
    with listening(active) as (listener, address):
        dialed = dial(address, passive, ACTIVE, PATIENCE)
        try:
            accepted = listener.accept(PATIENCE)
            yield accepted, dialed
            accepted.close()
        finally:
            dialed.close()
