"""`florist health`: ask a running party how it is, for supervisors and container engines."""

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

#: Seconds for the answer; longer counts as none.
PATIENCE = 5.0
#: Characters of an answer that are shown.
LIMIT = 500


@dataclass(frozen=True, slots=True)
class Health:
    """Whether all is well, and what was said or is to be done."""

    is_well: bool
    words: str


def ask(config_path: Path, path: str) -> Health:
    """Ask at `path` of the party's `observability.address`. Whatever is wrong, it is not well."""
    try:
        address = load_config(config_path).observability.address
    except ConfigurationError as error:
        return Health(False, error.reason)
    if address is None:
        return Health(
            False,
            f"{config_path}: observability.address is null, so there is nobody to ask; set it",
        )
    host, port = split_address(address)
    connection = HTTPConnection(_reachable(host), port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        words = answer.read(LIMIT).decode(errors="replace")
    except (OSError, HTTPException) as error:
        return Health(False, f"no answer from {address}: {error}")
    finally:
        connection.close()
    return Health(answer.status == 200, printable(words, LIMIT))


def _reachable(host: str) -> str:
    """Where a party that listens at `host` is found on this machine."""
    try:
        found = ip_address(host)
    except ValueError:
        return host
    if not found.is_unspecified:
        return host
    return "::1" if found.version == 6 else "127.0.0.1"
