"""The state of a party at one moment: what the status page, its JSON and the metrics show.

It contains nothing that reveals who is shared: counts of work that both parties know, times of
whole stages, and the aggregates of training and self-audit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Literal

from florist.common.session.stage_state import STAGES as RUN_STAGES

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from florist.common.observability.log_tail import LogLine
    from florist.common.observability.requests import RequestFigures
    from florist.common.observability.training_watch import TrainingFigures

#: In their order. A run includes some of them.
STAGES = (*RUN_STAGES, "serve")

#: `idle`: not connecting yet, or no longer; `unknown`: it connects on demand (we serve it).
PeerState = Literal["idle", "awaited", "up", "lost", "unknown"]
StagePhase = Literal["pending", "running", "done", "failed", "stopped"]
#: The last three are final: `finished` as planned, `stopped` by the operator.
PartyState = Literal["preparing", "running", "waiting", "serving", "finished", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class About:
    """The party that this is the status of."""

    party: str
    peer: str
    role: RoleName
    release: str


@dataclass(frozen=True, slots=True)
class StepFigures:
    """A step in progress; `total` is 0 until it is known. The speed is a 60-second average."""

    title: str
    done: int
    total: int
    per_second: float


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A stage of this run."""

    name: str
    state: StagePhase
    #: Rows processed; in alignment, exponentiations.
    rows: int
    #: The part of the stage that is done, from 0 to 1.
    fraction: float
    #: What a finished stage has found, in a few words.
    result: str | None


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """An estimate of the time until the current stage is finished."""

    seconds: float
    #: Whether it is a lower bound, because the extent of some work is not known yet.
    is_at_least: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole status at one moment."""

    about: About
    #: Seconds from the start until now or, if the run has ended, until its end.
    uptime: float
    state: PartyState
    is_ready: bool
    #: Why the run failed, or why the party is not ready.
    reason: str | None
    #: What the operator can do once the run has failed or was stopped.
    advice: str | None
    stages: tuple[StageFigures, ...]
    peer: PeerState
    #: Seconds in that state.
    peer_since: float
    reconnects: int
    steps: tuple[StepFigures, ...]
    #: None if it cannot be told.
    time_left: TimeLeft | None
    rows_per_second: float
    sent: int
    received: int
    #: Seconds spent waiting for the peer, or for its messages.
    waited: float
    certificate_days: float | None
    #: Fraction of the privacy budget; None without one.
    budget_left: float | None
    training: TrainingFigures | None
    #: None unless the party serves predictions, or did.
    requests: RequestFigures | None
    log: tuple[LogLine, ...]


def json_fields(figures: object) -> dict[str, object]:
    """Return the fields of a dataclass for `json.dumps`; NaN and infinity become None."""
    if not is_dataclass(figures):
        raise TypeError(type(figures).__name__)
    return {each.name: finite(getattr(figures, each.name)) for each in fields(figures)}


def finite(value: object) -> object:
    """Return the value, or None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
