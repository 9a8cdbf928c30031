"""Network addresses in a configuration: `host:port`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

# Host names have no underscores, but the service names of container tools do.
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` into host and port; an IPv6 host is returned without its brackets.

    Raises:
        ValueError: the address is invalid. The message completes "the address ...".
    """
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError("must be host:port, with a port from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host, ipaddress.IPv6Address):
            raise ValueError("must have a valid IPv6 address between the brackets")
        return host, int(port)
    if ":" in host:
        raise ValueError("must have its IPv6 address in brackets and quotes, such as '[::1]:7000'")
    labels = host.removesuffix(".").split(".")
    if not all(_HOST_LABEL.fullmatch(label) for label in labels) or len(host) > 253:
        raise ValueError("must be host:port, with a host name or an IP address")
    if labels[-1].isdigit() and not _is_ip(host, ipaddress.IPv4Address):
        raise ValueError("must have a valid IPv4 address: four numbers from 0 to 255")
    return host, int(port)


def _is_ip(host: str, kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True


def _check_address(address: str) -> str:
    split_address(address)
    return address


def _check_ray_address(address: str) -> str:
    if address not in ("auto", "local"):
        try:
            split_address(address)
        except ValueError as error:
            raise ValueError(f"{error}; or it must be auto or local") from None
    return address


Address = Annotated[str, AfterValidator(_check_address)]
RayAddress = Annotated[str, AfterValidator(_check_ray_address)]
