"""The status of a running party: stages report to it, and the status server reads it.

Safe to use from several threads.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.observability.gauges import Rate, Stopwatch
from florist.common.observability.snapshot import Snapshot, StageFigures, StepFigures
from florist.common.observability.training_watch import TrainingWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from florist.common.audit.findings import AuditRecord
    from florist.common.core.clock import Clock
    from florist.common.observability.log_tail import LogLine
    from florist.common.observability.snapshot import About, PartyState, PeerState, StagePhase
    from florist.common.training.loop import Run
    from florist.common.transport.channel import Link

S = TypeVar("S", bound=str)


class Status:
    """The status of one party, from the start of the process to its end."""

    def __init__(
        self,
        about: About,
        *,
        certificate_days: Callable[[], float | None] = lambda: None,
        log: Callable[[], tuple[LogLine, ...]] = tuple,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.waits = Stopwatch(clock)
        self._about = about
        self._certificate_days = certificate_days
        self._log = log
        self._clock = clock
        self._started = clock.now()
        self._lock = Lock()
        self._stages: dict[str, StagePhase] = {}
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

    # --- written by the run ---

    @property
    def about(self) -> About:
        """The party that this is the status of."""
        return self._about

    def stages(self, plan: Sequence[S]) -> Iterator[S]:
        """Yield the planned stages; each counts as running until the next is requested."""
        self._stages = dict.fromkeys(map(str, plan), "pending")
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
        """Record that the run failed."""
        with self._lock:
            self._failure = reason
            if self._stage is not None:
                self._stages[self._stage] = "failed"

    @contextmanager
    def step(self, title: str) -> Iterator[StepWatch]:
        """Record a step of the current stage while the context lasts."""
        step = StepWatch(title, self.count_rows, self._clock)
        with self._lock:
            self._steps.append(step)
        try:
            yield step
        finally:
            with self._lock:
                self._steps.remove(step)

    def count_rows(self, rows: int) -> None:
        """Count work of the current stage."""
        stage = self._stage
        if stage is not None:
            self._rows[stage].add(rows)

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
        """Record that we serve predictions; without `peer_is_up` the peer's state is unknown."""
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
                self._peer, self._peer_changed = state, self._clock.now()

    # --- read by the status server ---

    @property
    def failure(self) -> str | None:
        """Why the run failed, or None."""
        return self._failure

    def unready(self) -> str | None:
        """Return why this party is not working with its peer, or None if it is."""
        if self._failure is not None:
            return f"failed: {self._failure}"
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
        now, days, log = self._clock.now(), self._certificate_days(), self._log()
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
        if self._is_serving:
            return "serving"
        if self._stages and all(state == "done" for state in self._stages.values()):
            return "finished"
        if peer in ("awaited", "lost"):
            return "waiting"
        return "running" if peer == "up" or self._steps else "preparing"


class StepWatch:
    """One step in progress; a `StepProgress`."""

    def __init__(self, title: str, count: Callable[[int], None], clock: Clock) -> None:
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
        """Return the step's progress so far."""
        return StepFigures(self._title, self._rate.count, self._total, self._rate.per_second())


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
