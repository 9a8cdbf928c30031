"""What a party is doing, for whoever watches: the run reports to it, metrics and page read it.

Safe to use from several threads. It holds nothing that tells who is shared: counts of work that
both parties know, times over whole stages, and the aggregates of training and self-audit.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from threading import Lock
from typing import TYPE_CHECKING, Literal, TypeVar

from florist.common.observability.gauges import Rate, Stopwatch
from florist.common.observability.training_watch import TrainingWatch
from florist.common.session.stage_state import STAGES as RUN_STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from florist.common.audit.findings import AuditRecord
    from florist.common.core.roles import RoleName
    from florist.common.observability.log_tail import LogLine
    from florist.common.observability.training_watch import TrainingFigures
    from florist.common.training.loop import Run
    from florist.common.transport.channel import Link

#: In their order. A run has some of them.
STAGES = (*RUN_STAGES, "serve")

#: `idle`: not called yet, or no longer; `unknown`: it comes when it likes (we serve it).
PeerState = Literal["idle", "awaited", "up", "lost", "unknown"]
StageState = Literal["to come", "running", "done", "failed"]
State = Literal["preparing", "running", "waiting", "serving", "finished", "failed"]

S = TypeVar("S", bound=str)


@dataclass(frozen=True, slots=True)
class About:
    """Who this is."""

    party: str
    peer: str
    role: RoleName
    release: str


@dataclass(frozen=True, slots=True)
class StepFigures:
    """A step under way; `total` is 0 while it is not known."""

    title: str
    done: int
    total: int
    per_second: float


@dataclass(frozen=True, slots=True)
class StageFigures:
    """A stage of this run."""

    name: str
    state: StageState
    #: Rows; in alignment, exponentiations.
    rows: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment."""

    about: About
    #: Seconds since the start.
    uptime: float
    state: State
    is_ready: bool
    #: Of the failure, or why it is not ready.
    reason: str | None
    stages: tuple[StageFigures, ...]
    peer: PeerState
    #: Seconds in that state.
    peer_since: float
    reconnects: int
    steps: tuple[StepFigures, ...]
    rows_per_second: float
    sent: int
    received: int
    #: Seconds in which we waited for a message of the peer's, or for the peer.
    waited: float
    certificate_days: float | None
    training: TrainingFigures | None
    log: tuple[LogLine, ...]

    def to_json(self) -> str:
        """The same as JSON; what is no finite number is null."""
        return json.dumps(self, default=_fields, allow_nan=False)


class Status:
    """One party's run, from its start to its end."""

    def __init__(
        self,
        about: About,
        *,
        certificate_days: Callable[[], float | None] = lambda: None,
        log: Callable[[], tuple[LogLine, ...]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waits = Stopwatch(clock)
        self._about = about
        self._certificate_days = certificate_days
        self._log = log
        self._clock = clock
        self._started = clock()
        self._lock = Lock()
        self._stages: dict[str, StageState] = {}
        self._rows: dict[str, Rate] = {}
        self._stage: str | None = None
        self._failure: str | None = None
        self._steps: list[StepWatch] = []
        self._peer: PeerState = "idle"
        self._peer_changed = self._started
        self._peer_was_lost = False
        self._reconnects = 0
        self._link: Link | None = None
        self._sent = self._received = 0
        self._is_serving = False
        self._peer_check: PeerCheck | None = None
        self._training: TrainingWatch | None = None
        self._training_lock = Lock()

    # -- what the run reports ----------------------------------------------------------------------

    @property
    def about(self) -> About:
        return self._about

    def stages(self, plan: Sequence[S]) -> Iterator[S]:
        """The same, noted: each is under way until the next is asked for."""
        self._stages = dict.fromkeys(map(str, plan), "to come")
        for stage in plan:
            name = str(stage)
            with self._lock:
                self._stage, self._stages[name] = name, "running"
                self._rows[name] = Rate(self._clock)
                self._peer_was_lost = False
            yield stage
            self._stages[name] = "done"
        self._stage = None

    def fail(self, reason: str) -> None:
        """The run ends badly."""
        with self._lock:
            self._failure = reason
            if self._stage is not None:
                self._stages[self._stage] = "failed"

    @contextmanager
    def step(self, title: str) -> Iterator[StepWatch]:
        """A step of the current stage."""
        step = StepWatch(title, self.count_rows, self._clock)
        with self._lock:
            self._steps.append(step)
        try:
            yield step
        finally:
            with self._lock:
                self._steps.remove(step)

    def count_rows(self, rows: int) -> None:
        """Work of the current stage."""
        stage = self._stage
        if stage is not None:
            self._rows[stage].add(rows)

    @contextmanager
    def awaiting_peer(self) -> Iterator[None]:
        """While we wait for the peer to come."""
        self._set_peer("awaited")
        try:
            with self.waits:
                yield
        except BaseException:
            self._set_peer("lost" if self._peer_was_lost else "idle")
            raise

    @contextmanager
    def connected(self, link: Link) -> Iterator[None]:
        """While the peer is there."""
        with self._lock:
            self._reconnects += self._peer_was_lost
            self._link = link
        self._set_peer("up")
        try:
            yield
        finally:
            with self._lock:
                self._link = None
                self._sent += link.traffic.all_sent
                self._received += link.traffic.all_received
                self._peer_was_lost = link.failure is not None
            self._set_peer("lost" if self._peer_was_lost else "idle")

    def train(self, run: Run, audit: AuditRecord | None = None) -> None:
        """Follow this run and its self-audit, if any, instead of an earlier run."""
        with self._training_lock:
            self._training = TrainingWatch(run, audit)

    @contextmanager
    def serving(self, peer_is_up: Callable[[], bool] | None) -> Iterator[None]:
        """While predictions are given; without a question for the peer its state is unknown."""
        self._peer_check = None if peer_is_up is None else PeerCheck(peer_is_up, self._clock)
        self._set_peer("unknown")
        self._is_serving = True
        try:
            yield
        finally:
            self._is_serving = False
            self._set_peer("idle")

    def _set_peer(self, state: PeerState) -> None:
        with self._lock:
            if state != self._peer:
                self._peer, self._peer_changed = state, self._clock()

    # -- what others read --------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why the run failed, if it did."""
        return self._failure

    def unready(self) -> str | None:
        """Why this party is not at work with its peer; None if it is."""
        if self._failure is not None:
            return f"failed: {self._failure}"
        if self._is_serving:
            return None if self._peer_now() in ("up", "unknown") else "the peer does not serve"
        match self._peer_now():
            case "up":
                return None
            case "awaited" | "lost":
                return "waiting for the peer"
            case _:
                return "not connected to the peer yet"

    def snapshot(self) -> Snapshot:
        peer = self._peer_now()
        unready = self.unready()
        with self._training_lock:
            training = None if self._training is None else self._training.read()
        now, days, log = self._clock(), self._certificate_days(), self._log()
        with self._lock:
            sent, received = self._sent, self._received
            if self._link is not None:
                sent += self._link.traffic.all_sent
                received += self._link.traffic.all_received
            stage = self._stage
            return Snapshot(
                about=self._about,
                uptime=now - self._started,
                state=self._state(peer),
                is_ready=unready is None,
                reason=self._failure or unready,
                stages=tuple(
                    StageFigures(name, state, self._rows[name].count if name in self._rows else 0)
                    for name, state in self._stages.items()
                ),
                peer=peer,
                peer_since=now - self._peer_changed,
                reconnects=self._reconnects,
                steps=tuple(step.read() for step in self._steps),
                rows_per_second=self._rows[stage].per_second() if stage in self._rows else 0.0,
                sent=sent,
                received=received,
                waited=self.waits.seconds,
                certificate_days=days,
                training=training,
                log=log,
            )

    def _peer_now(self) -> PeerState:
        """As noted, unless the link or the peer itself says otherwise."""
        if self._is_serving and self._peer_check is not None:
            self._set_peer("up" if self._peer_check() else "lost")
        link = self._link
        if link is not None and link.failure is not None:
            self._set_peer("lost")
        return self._peer

    def _state(self, peer: PeerState) -> State:
        if self._failure is not None:
            return "failed"
        if self._is_serving:
            return "serving"
        if self._stages and all(state == "done" for state in self._stages.values()):
            return "finished"
        if peer in ("awaited", "lost"):
            return "waiting"
        return "running" if peer == "up" or self._steps else "preparing"


class StepWatch:
    """One step under way; a `StepProgress`."""

    def __init__(
        self, title: str, count: Callable[[int], None], clock: Callable[[], float]
    ) -> None:
        self._title = title
        self._count = count
        self._total = 0
        self._rate = Rate(clock)

    def expect(self, total: int) -> None:
        self._total = total

    def advance(self, done: int) -> None:
        self._rate.add(done)
        self._count(done)

    def read(self) -> StepFigures:
        return StepFigures(self._title, self._rate.count, self._total, self._rate.per_second())


class PeerCheck:
    """Asks whether the peer is up, not too often, and one thread at a time."""

    #: Seconds for which an answer holds.
    EVERY = 5.0

    def __init__(self, ask: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._asked = -math.inf
        self._answer = False

    def __call__(self) -> bool:
        with self._lock:
            if self._clock() - self._asked >= self.EVERY:
                self._answer = self._ask()
                self._asked = self._clock()
            return self._answer


def _fields(figures: object) -> dict[str, object]:
    """Those of a dataclass, one level deep."""
    if not is_dataclass(figures):
        raise TypeError(type(figures).__name__)
    values = ((each.name, getattr(figures, each.name)) for each in fields(figures))
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values
    }
