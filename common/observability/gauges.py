"""Values that are read while they grow: time spent waiting, a curve of bounded length.

An update takes about a microsecond; everything slower is done by the reader.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.core.clock import Clock


class Stopwatch:
    """A context manager that measures the time during which at least one thread is inside."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = Lock()
        self._inside = 0
        self._since = 0.0
        self._total = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._since = self._clock.now()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._total += self._clock.now() - self._since

    @property
    def seconds(self) -> float:
        """The total so far, including the current time inside."""
        with self._lock:
            return self._total + (self._clock.now() - self._since if self._inside else 0.0)


class Curve:
    """A long series in few points: means over intervals, which double when there are too many."""

    #: Once there are enough values, there are at least half as many points.
    MAX_POINTS = 256

    def __init__(self) -> None:
        self.count = 0
        self._interval = 1
        self._means: list[float] = []
        self._rest: list[float] = []

    def extend(self, values: Sequence[float]) -> None:
        """Append new values; the cost depends on their number only."""
        self.count += len(values)
        self._rest.extend(values)
        while len(self._rest) >= self._interval:
            whole = len(self._rest) // self._interval * self._interval
            self._means += [
                sum(self._rest[start : start + self._interval]) / self._interval
                for start in range(0, whole, self._interval)
            ]
            del self._rest[:whole]
            while len(self._means) > self.MAX_POINTS:
                self._halve()

    def _halve(self) -> None:
        if len(self._means) % 2:
            self._rest[:0] = [self._means.pop()] * self._interval
        pairs = zip(self._means[::2], self._means[1::2], strict=True)
        self._means = [(first + second) / 2 for first, second in pairs]
        self._interval *= 2

    def points(self) -> list[tuple[int, float]]:
        """Return each mean with the number of values up to the end of its interval."""
        ends = range(self._interval, self.count + 1, self._interval)
        return list(zip(ends, self._means, strict=True))
