"""Section `observability`: the status page and the metrics of a party."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field
from pydantic import field_validator as check_field

from florist.common.settings.addresses import Address
from florist.common.settings.field_types import FilePath
from florist.common.settings.section import Section

if TYPE_CHECKING:
    from pathlib import Path


class Observability(Section):
    """Where this party's operators monitor a run."""

    address: Address | None = Field(
        default=None,
        description="host:port of the status page at `/`, of `/metrics` for Prometheus, and of "
        "`/healthz` and `/readyz`; for example 127.0.0.1:9464, which only this machine can reach. "
        "null: no status page. It does not reveal which people are shared, but everyone who "
        "can connect can read the log: it has no password and no TLS.",
    )
    linger: float = Field(
        default=20.0,
        ge=0,
        le=3600,
        description="Seconds for which the status page and `/metrics` remain after the run has "
        "finished or failed, so that an open page shows the result and Prometheus scrapes the "
        "failure; the process ends afterwards. Ctrl-C and SIGTERM end it at once. The last state "
        "also remains in the run directory, as status.html. 0: end at once.",
    )
    textfile: FilePath | None = Field(
        default=None,
        description="File, with a name that ends in .prom, for the textfile collector of "
        "Prometheus's node exporter: whether this party failed, its exit code and the privacy "
        "budget that is left. It stays when the party ends. It does not reveal which people are "
        "shared, and every user of this machine can read it. null: none.",
    )

    @check_field("textfile")
    @classmethod
    def _is_collected(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix != ".prom":
            raise ValueError("must end in .prom, or the collector ignores it")
        return path
