"""A party in a separate process: opens a channel, prints `ready`, then runs until it is killed.

Usage: peer_process.py listen|dial ADDRESS PEER_NAME AUTHORITY CERTIFICATE KEY
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from florist.common.transport.credentials import Credentials
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.grpc_listener import GrpcListener

if TYPE_CHECKING:
    from florist.common.transport.channel import Link

PATIENCE = 20.0


def connect(how: str, address: str, peer_name: str, credentials: Credentials) -> Link:
    if how == "dial":
        return dial(address, credentials, peer_name, PATIENCE)
    listener = GrpcListener(address, credentials, peer_name)
    listener.start()
    return listener.accept(PATIENCE)


def main() -> None:
    how, address, peer_name, authority, certificate, key = sys.argv[1:]
    credentials = Credentials(Path(authority), Path(certificate), Path(key))
    link = connect(how, address, peer_name, credentials)
    link.channel("lane", PATIENCE)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    Event().wait(3 * PATIENCE)


if __name__ == "__main__":
    main()
