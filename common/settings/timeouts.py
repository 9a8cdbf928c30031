"""Section `timeouts`: how long to wait for the peer."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.field_types import Seconds
from florist.common.settings.section import Section


class Timeouts(Section):
    """How long to wait for the peer."""

    connect: Seconds = Field(
        default=600.0,
        description="Seconds to wait for the peer to connect, once this party is ready.",
    )
    silence: float = Field(
        default=10.0,
        ge=3,
        le=13,
        description="Seconds without a heartbeat after which the peer is considered lost, 3 to 13.",
    )
    stall: Seconds = Field(
        default=1800.0,
        description="Seconds that the peer may be alive without making progress.",
    )
    outage: float = Field(
        default=1800.0,
        ge=0,
        description="Seconds to wait for a peer that is lost during a run, because the network "
        "failed or the peer restarts; the run then resumes automatically. 0: the run ends as soon "
        "as the peer is lost.",
    )
