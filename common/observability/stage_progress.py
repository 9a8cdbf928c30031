"""How far a stage is: its steps, the fraction that is done, and the time that is left."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.pace import Rate, StepPace
from florist.common.observability.snapshot import StageFigures, StepFigures, TimeLeft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.core.clock import Clock
    from florist.common.observability.snapshot import StagePhase


class StageProgress:
    """The progress of one stage, in parts of about equal length, such as one union per table.

    The steps of a part run at the same time or one after the other. The total work of a part is
    known only once all of its steps have started, so the fraction is an estimate; it never falls.
    Safe to use from several threads.
    """

    def __init__(self, name: str, clock: Clock, parts: int = 1) -> None:
        self.name = name
        self.state: StagePhase = "pending"
        self.result: str | None = None
        self.rows = Rate(clock)
        self._clock = clock
        self._parts = parts
        self._part = 0
        self._lock = Lock()
        self._running: list[StepWatch] = []
        self._part_steps: list[StepWatch] = []
        self._highest = 0.0

    @contextmanager
    def step(self, title: str) -> Iterator[StepWatch]:
        """Record a step while the context lasts."""
        step = StepWatch(title, self.rows.add, self._clock)
        with self._lock:
            self._running.append(step)
            self._part_steps.append(step)
        try:
            yield step
        finally:
            with self._lock:
                self._running.remove(step)

    def start_part(self, number: int) -> None:
        """Start part `number`, counted from 0; those before it are done."""
        with self._lock:
            self._part = min(number, self._parts - 1)
            self._part_steps = list(self._running)

    def steps(self) -> tuple[StepFigures, ...]:
        """Return the steps in progress."""
        with self._lock:
            running = list(self._running)
        return tuple(step.read() for step in running)

    def time_left(self) -> TimeLeft | None:
        """Return the time until the slowest current step is done; None if it cannot be told.

        It is a lower bound while there is more to do whose extent is not known yet.
        """
        with self._lock:
            paces = [step.pace for step in self._running]
            is_last = self._part == self._parts - 1
        left = [pace.seconds_left() for pace in paces]
        known = [seconds for seconds in left if seconds is not None]
        if not known:
            return None
        return TimeLeft(max(known), is_at_least=len(known) < len(left) or not is_last)

    def read(self, fraction: float | None = None) -> StageFigures:
        """Return the figures of the stage; `fraction` replaces the estimate from the steps."""
        match self.state:
            case "done":
                shown = 1.0
            case "pending":
                shown = 0.0
            case _:
                shown = self._fraction() if fraction is None else fraction
        return StageFigures(self.name, self.state, self.rows.count, round(shown, 4), self.result)

    def _fraction(self) -> float:
        with self._lock:
            paces = [step.pace for step in self._part_steps if step.pace.total]
            total = sum(pace.total for pace in paces)
            done = sum(min(pace.done, pace.total) for pace in paces)
            within = done / total if total else 0.0
            self._highest = max(self._highest, (self._part + within) / self._parts)
            return self._highest


class StepWatch:
    """One step in progress; a `StepProgress`."""

    def __init__(self, title: str, count: Callable[[int], None], clock: Clock) -> None:
        self.pace = StepPace(clock)
        self._title = title
        self._count = count

    def expect(self, total: int) -> None:
        self.pace.expect(total)

    def advance(self, done: int) -> None:
        self.pace.advance(done)
        self._count(done)

    def read(self) -> StepFigures:
        """Return the step's progress so far."""
        return StepFigures(self._title, self.pace.done, self.pace.total, self.pace.per_second())
