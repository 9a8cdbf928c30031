"""Free TCP ports for parties that meet on this machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a TCP port of this machine that is not in use at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
