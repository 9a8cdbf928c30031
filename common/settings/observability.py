"""Section `observability`: the status page and the metrics of a party."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.addresses import Address
from florist.common.settings.section import Section


class Observability(Section):
    """Where our own operators see how the run goes."""

    address: Address | None = Field(
        default=None,
        description="host:port of a status page at `/`, and of `/metrics` for Prometheus, "
        "`/healthz` and `/readyz`, such as 127.0.0.1:9464, which is for this machine alone; null: "
        "none. It tells nobody who is shared, but whoever reaches it reads the log: no password "
        "and no TLS of its own.",
    )
