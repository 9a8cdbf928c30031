"""Section `timeouts`: how long to wait for the peer."""

from __future__ import annotations

from typing import Literal

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
    notice: float = Field(
        default=5.0,
        ge=0,
        le=60,
        description="Seconds in which a party that cannot start, for example because its table is "
        "rejected, tries to tell its peer so. 0: it does not.",
    )
    if_peer_cannot_start: Literal["stop", "wait"] = Field(
        default="stop",
        description="What to do when the peer tells that it cannot start. stop: this party ends "
        "too, with exit code 5. wait: it waits for the peer to be started again, until the time "
        "of connect or outage is over.",
    )
