"""Section `timeouts`: how long to wait for the peer."""

from __future__ import annotations

from pydantic import Field

from florist.common.settings.field_types import Seconds
from florist.common.settings.section import Section


class Timeouts(Section):
    """How long to wait for the peer."""

    connect: Seconds = Field(
        default=600.0, description="Seconds to wait for the peer to come up, once we are ready."
    )
    silence: float = Field(
        default=10.0,
        ge=3,
        le=13,
        description="Seconds without a sign of life after which the peer counts as lost, 3 to 13.",
    )
    stall: Seconds = Field(
        default=1800.0, description="Seconds that a peer may be alive and make no progress."
    )
    outage: float = Field(
        default=1800.0,
        ge=0,
        description="Seconds that the peer may be away once a run has begun: the line is cut, or "
        "the peer restarts. The run then goes on by itself. 0 ends the run at the first loss.",
    )
