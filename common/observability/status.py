"""The status of a running party: stages report to it, and the status server reads it.

Safe to use from several threads.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.observability.gauges import Stopwatch
from florist.common.observability.requests import RequestGauge
from florist.common.observability.snapshot import Snapshot
from florist.common.observability.stage_progress import StageProgress, StepWatch
from florist.common.observability.training_watch import TrainingWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from florist.common.audit.findings import AuditRecord
    from florist.common.core.clock import Clock
    from florist.common.observability.log_tail import LogLine
    from florist.common.observability.snapshot import About, PartyState, PeerState, StagePhase
    from florist.common.training.loop import Run
    from florist.common.transport.channel import Link, Traffic

S = TypeVar("S", bound=str)


class Status:
    """The status of one party, from the start of the process to its end."""

    def __init__(
        self,
        about: About,
        *,
        certificate_days: Callable[[], float | None] = lambda: None,
        budget_left: Callable[[], float | None] = lambda: None,
        log: Callable[[], tuple[LogLine, ...]] = tuple,
        parts: Mapping[str, int] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`parts` has the number of parts of those stages that have several."""
        self.waits = Stopwatch(clock)
        self.requests = RequestGauge(clock)
        self._about = about
        self._certificate_days = certificate_days
        self._budget_left = budget_left
        self._log = log
        self._clock = clock
        self._started = clock.now()
        self._parts = parts or {}
        self._lock = Lock()
        self._stages: dict[str, StageProgress] = {}
        #: Steps outside the stages have no stage.
        self._no_stage = StageProgress("", clock)
        self._stage: StageProgress | None = None
        self._ended: float | None = None
        self._failure: str | None = None
        self._stopped: str | None = None
        self._advice: str | None = None
        self._peer: PeerState = "idle"
        self._peer_changed = self._started
        self._peer_was_lost = False
        self._reconnects = 0
        self._link: Link | None = None
        self._traffic: Traffic | None = None
        self._sent = self._received = 0
        self._is_serving = False
        self._has_served = False
        self._peer_check: PeerCheck | None = None
        self._training: TrainingWatch | None = None
        self._training_lock = Lock()

    # --- written by the run ---

    @property
    def about(self) -> About:
        """The party that this is the status of."""
        return self._about

    def stages(self, plan: Sequence[S]) -> Iterator[S]:
        """Yield the planned stages; each counts as running until the next is requested."""
        self._stages = {
            str(stage): StageProgress(str(stage), self._clock, self._parts.get(str(stage), 1))
            for stage in plan
        }
        for stage in plan:
            with self._lock:
                self._stage = self._stages[str(stage)]
                self._stage.state = "running"
                self._peer_was_lost = False
            yield stage
            self._stages[str(stage)].state = "done"
        self._stage = None

    def set_result(self, stage: str, result: str) -> None:
        """Record what a stage has found."""
        self._stages[stage].result = result

    def finish(self) -> None:
        """Record that the run ended as planned."""
        with self._lock:
            self._ended = self._clock.now()

    def fail(self, reason: str, advice: str = "") -> None:
        """Record that the run failed, and what the operator can do about it."""
        with self._lock:
            self._failure = reason
        self._end_early("failed", advice)

    def stop(self, reason: str, advice: str = "") -> None:
        """Record that the operator stopped the run, which is not a failure."""
        with self._lock:
            self._stopped = reason
        self._end_early("stopped", advice)

    def _end_early(self, phase: StagePhase, advice: str) -> None:
        with self._lock:
            self._ended = self._clock.now()
            self._advice = advice or None
            if self._stage is not None:
                self._stage.state = phase

    @property
    def may_linger(self) -> bool:
        """Whether the run ended by itself: an operator who stops it does not want to wait."""
        return self._stopped is None and not self._has_served

    def step(self, title: str) -> AbstractContextManager[StepWatch]:
        """Record a step of the current stage while the context lasts."""
        return self._current_stage.step(title)

    def start_part(self, number: int) -> None:
        """Record that a part of the current stage starts, counted from 0."""
        self._current_stage.start_part(number)

    def count_rows(self, rows: int) -> None:
        """Count work of the current stage."""
        if self._stage is not None:
            self._stage.rows.add(rows)

    @property
    def _current_stage(self) -> StageProgress:
        return self._stage or self._no_stage

    @contextmanager
    def awaiting_peer(self) -> Iterator[None]:
        """Record that we wait for the peer to connect."""
        self._set_peer("awaited")
        try:
            with self.waits:
                yield
        except BaseException:
            self._set_peer("lost" if self._peer_was_lost else "idle")
            raise

    @contextmanager
    def connected(self, link: Link) -> Iterator[None]:
        """Record that the peer is connected by this link."""
        with self._lock:
            self._reconnects += self._peer_was_lost
            self._link = link
        self._set_peer("up")
        try:
            with self._counting(link.traffic):
                yield
        finally:
            with self._lock:
                self._link = None
                self._peer_was_lost = link.failure is not None
            self._set_peer("lost" if self._peer_was_lost else "idle")

    @contextmanager
    def _counting(self, traffic: Traffic) -> Iterator[None]:
        """Add this traffic to ours."""
        with self._lock:
            self._traffic = traffic
        try:
            yield
        finally:
            with self._lock:
                self._traffic = None
                self._sent += traffic.all_sent
                self._received += traffic.all_received

    def train(self, run: Run, audit: AuditRecord | None = None) -> None:
        """Follow this run and its self-audit, if any, instead of an earlier run."""
        with self._training_lock:
            self._training = TrainingWatch(run, audit)

    @contextmanager
    def serving(self, peer_is_up: Callable[[], bool] | None, traffic: Traffic) -> Iterator[None]:
        """Record that we serve predictions; without `peer_is_up` the peer's state is unknown."""
        self._peer_check = None if peer_is_up is None else PeerCheck(peer_is_up, self._clock)
        self._set_peer("unknown")
        self._is_serving = self._has_served = True
        try:
            with self._counting(traffic):
                yield
        finally:
            self._is_serving = False
            self._set_peer("idle")

    def _set_peer(self, state: PeerState) -> None:
        with self._lock:
            if state != self._peer:
                self._peer, self._peer_changed = state, self._clock.now()

    # --- read by the status server ---

    @property
    def failure(self) -> str | None:
        """Why the run failed, or None."""
        return self._failure

    def unready(self) -> str | None:
        """Return why this party is not working with its peer, or None if it is."""
        if self._ended is not None:
            return f"failed: {self._failure}" if self._failure else self._stopped or "finished"
        if self._is_serving:
            return None if self._peer_now() in ("up", "unknown") else "the peer is not serving"
        match self._peer_now():
            case "up":
                return None
            case "awaited" | "lost":
                return "waiting for the peer"
            case _:
                return "not connected to the peer yet"

    def snapshot(self) -> Snapshot:
        """Return the whole status at this moment."""
        peer = self._peer_now()
        unready = self.unready()
        with self._training_lock:
            training = None if self._training is None else self._training.read()
        days, log, budget_left = self._certificate_days(), self._log(), self._budget_left()
        requests = self.requests.read() if self._has_served else None
        # Training knows how far it is, also after a resumption.
        known = {} if training is None else {"train": training.step / training.steps}
        with self._lock:
            now = self._clock.now() if self._ended is None else self._ended
            sent, received = self._sent, self._received
            if self._traffic is not None:
                sent += self._traffic.all_sent
                received += self._traffic.all_received
            state, stage = self._state(peer), self._stage
            return Snapshot(
                about=self._about,
                uptime=now - self._started,
                state=state,
                is_ready=unready is None,
                reason=self._failure or unready,
                advice=self._advice,
                stages=tuple(each.read(known.get(name)) for name, each in self._stages.items()),
                peer=peer,
                peer_since=max(now - self._peer_changed, 0.0),
                reconnects=self._reconnects,
                steps=self._current_stage.steps(),
                time_left=self._current_stage.time_left() if state == "running" else None,
                rows_per_second=0.0 if stage is None else stage.rows.per_second(),
                sent=sent,
                received=received,
                waited=self.waits.seconds,
                certificate_days=days,
                budget_left=budget_left,
                training=training,
                requests=requests,
                log=log,
            )

    def _peer_now(self) -> PeerState:
        """Return the recorded state of the peer, updated by the link or by asking the peer."""
        if self._is_serving and self._peer_check is not None:
            self._set_peer("up" if self._peer_check() else "lost")
        link = self._link
        if link is not None and link.failure is not None:
            self._set_peer("lost")
        return self._peer

    def _state(self, peer: PeerState) -> PartyState:
        if self._failure is not None:
            return "failed"
        if self._stopped is not None:
            return "stopped"
        if self._ended is not None:
            return "finished"
        if self._is_serving:
            return "serving"
        if peer in ("awaited", "lost"):
            return "waiting"
        return "running" if peer == "up" or self._current_stage.steps() else "preparing"


class PeerCheck:
    """Asks whether the peer is up, at most every few seconds and from one thread at a time."""

    #: Seconds for which an answer is reused.
    EVERY = 5.0

    def __init__(self, ask: Callable[[], bool], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._asked = -math.inf
        self._answer = False

    def __call__(self) -> bool:
        with self._lock:
            if self._clock.now() - self._asked >= self.EVERY:
                self._answer = self._ask()
                self._asked = self._clock.now()
            return self._answer
