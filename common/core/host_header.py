"""The check of the Host header of HTTP requests, for servers on a loopback address.

A web page can make its own host name point at 127.0.0.1 (DNS rebinding). The user's browser then
lets the page's script talk to servers on this machine. Such requests carry the page's host name, so
a server on a loopback address refuses all names but its own.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def allowed_hosts(listening: str) -> frozenset[str] | None:
    """Return the host names that requests may use; None for any.

    Args:
        listening: the IP address at which the server listens.
    """
    if not ipaddress.ip_address(listening).is_loopback:
        return None
    return frozenset({listening, "localhost", "127.0.0.1", "::1"})


def is_allowed_host(header: str, hosts: frozenset[str] | None) -> bool:
    """Return whether a Host header (`name` or `name:port`) names one of the hosts.

    An empty header is allowed: browsers always send one.
    """
    try:
        name = urlsplit(f"//{header}").hostname
    except ValueError:
        return False
    return hosts is None or not header or name in hosts
