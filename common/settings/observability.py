"""Section `observability`: the status page and the metrics of a party."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.addresses import Address
from florist.common.settings.section import Section


class Observability(Section):
    """Where this party's operators monitor a run."""

    address: Address | None = Field(
        default=None,
        description="host:port of the status page at `/`, of `/metrics` for Prometheus, and of "
        "`/healthz` and `/readyz`; for example 127.0.0.1:9464, which only this machine can reach. "
        "null: no status page. It does not reveal which people are shared, but everyone who "
        "can connect can read the log: it has no password and no TLS.",
    )
