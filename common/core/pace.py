"""How fast work goes, and when a step will be finished.

The terminal, the log and the status page all take the time that is left from `StepPace`, so that
they agree.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from florist.common.core.clock import Clock


class Rate:
    """A count and its recent rate, which falls towards 0 when nothing is added."""

    #: Seconds over which the rate is averaged, unless told otherwise.
    WINDOW = 10.0
    #: Points that are recorded per window.
    POINTS = 20

    def __init__(self, clock: Clock = SYSTEM_CLOCK, window: float = WINDOW) -> None:
        self._clock = clock
        self._window = window
        self._spacing = window / self.POINTS
        self._lock = Lock()
        self._count = 0
        self._points = deque([(clock.now(), 0)], maxlen=self.POINTS + 1)

    def add(self, amount: int) -> None:
        """Increase the count."""
        now = self._clock.now()
        with self._lock:
            self._count += amount
            if now - self._points[-1][0] >= self._spacing:
                self._points.append((now, self._count))

    @property
    def count(self) -> int:
        """The total so far."""
        return self._count

    def per_second(self) -> float:
        """Return the average over the window; 0 right after the start."""
        with self._lock:
            now, count, points = self._clock.now(), self._count, list(self._points)
        old = [point for point in points if now - point[0] >= self._window]
        since, before = old[-1] if old else points[0]
        return (count - before) / (now - since) if now - since >= _SHORTEST else 0.0


#: Seconds from the start before which a rate would be a guess.
_SHORTEST = 0.25


class StepPace:
    """How far a step is, how fast it goes, and how many seconds it will still take."""

    #: Seconds over which the speed of a step is averaged: chunks of work may take many seconds.
    WINDOW = 60.0

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rate = Rate(clock, self.WINDOW)
        #: Total amount of work; 0 until it is known.
        self.total = 0

    def expect(self, total: int) -> None:
        """Set the total amount of work."""
        self.total = total

    def advance(self, done: int) -> None:
        """Count work as done."""
        self._rate.add(done)

    @property
    def done(self) -> int:
        """The work done so far."""
        return self._rate.count

    def per_second(self) -> float:
        """Return the recent speed."""
        return self._rate.per_second()

    def seconds_left(self) -> float | None:
        """Return how long the rest takes at the recent speed; None if it cannot be told."""
        speed = self.per_second()
        if not self.total or speed <= 0:
            return None
        return max(self.total - self.done, 0) / speed


def time_left_text(seconds: float) -> str:
    """Return a time in the units that matter, such as `4 min 10 s`; the status page does so too."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
