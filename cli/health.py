"""The health check of `florist health`, for supervisors and container engines."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import printable
from florist.common.settings.addresses import split_address
from florist.common.settings.loader import load_config

if TYPE_CHECKING:
    from pathlib import Path

#: Seconds to wait for the answer.
TIMEOUT = 5.0
#: Characters of the answer that are shown.
LIMIT = 500


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a party is healthy, and its answer or the problem."""

    is_healthy: bool
    message: str


def check_health(config_path: Path, path: str) -> Health:
    """Ask the party at its `observability.address`; any problem counts as unhealthy."""
    try:
        address = load_config(config_path).observability.address
    except ConfigurationError as error:
        return Health(False, error.reason)
    if address is None:
        return Health(
            False,
            f"{config_path}: observability.address is null, so health cannot be checked; set it",
        )
    host, port = split_address(address)
    connection = HTTPConnection(_reachable(host), port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read(LIMIT).decode(errors="replace")
    except (OSError, HTTPException) as error:
        return Health(False, f"no answer from {address}: {error}")
    finally:
        connection.close()
    return Health(answer.status == 200, printable(text, LIMIT))


def _reachable(host: str) -> str:
    """Return the address at which a party that listens at `host` is reachable locally."""
    try:
        found = ip_address(host)
    except ValueError:
        return host
    if not found.is_unspecified:
        return host
    return "::1" if found.version == 6 else "127.0.0.1"
