"""How a party ended, as a file for the textfile collector of Prometheus's node exporter.

The endpoint `/metrics` ends with the party; this file stays. It has only values that remain true.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError, Interrupted, as_florist_error
from florist.common.observability.budget import BudgetLeft
from florist.common.transport.certificate_files import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.roles import RoleName
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.observability")

#: The metrics of the file, and their meaning.
TEXTFILE_METRICS = {
    "florist_failed": "1 if the run has failed; 0 while it runs, if it finished, or if the "
    "operator stopped it.",
    "florist_exit_code": "The exit code; absent while the party runs.",
    "florist_ended_timestamp_seconds": "When the party ended, in seconds since 1970; absent while "
    "it runs.",
    "florist_privacy_budget_left": "Fraction of privacy.budget that is left; absent without one.",
}


@contextmanager
def recording_end(role: RoleName, config: PartyConfig) -> Iterator[None]:
    """Write the file at the start and at the end of the context, if one is configured.

    Raises:
        ConfigurationError: the file cannot be written at the start.
    """
    if config.observability.textfile is None:
        yield
        return
    try:
        _write(role, config, None)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"observability.textfile: {error.reason}; create its folder and let this party's user "
            "write to it"
        ) from None
    code, failed = 0, False
    try:
        yield
    except BaseException as error:
        reported = as_florist_error(error)
        code, failed = reported.exit_code, not isinstance(reported, Interrupted)
        raise
    finally:
        try:
            _write(role, config, code, failed=failed)
        except ConfigurationError as error:
            log.warning("observability.textfile: %s", error.reason)


def _write(
    role: RoleName, config: PartyConfig, exit_code: int | None, *, failed: bool = False
) -> None:
    """Replace the file as a whole; `exit_code` is None while the party runs."""
    from prometheus_client import (  # noqa: PLC0415 - not needed without the file
        CollectorRegistry,
        Gauge,
        generate_latest,
    )

    path = config.observability.textfile
    assert path is not None
    values = {
        "florist_failed": float(failed),
        "florist_exit_code": exit_code,
        "florist_ended_timestamp_seconds": None if exit_code is None else time.time(),
        "florist_privacy_budget_left": BudgetLeft(config).read(),
    }
    registry = CollectorRegistry()
    for name, value in values.items():
        if value is not None:
            # Labels: several parties may write to the same folder.
            gauge = Gauge(
                name, TEXTFILE_METRICS[name], ("party", "peer", "role"), registry=registry
            )
            gauge.labels(config.party.name, config.party.peer, role).set(value)
    write_file(path, generate_latest(registry), mode=0o644)
