"""Figures that grow while others read them: a rate, time spent waiting, a curve of bounded length.

Adding costs about a microsecond; what takes longer is done by the reader.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Rate:
    """A count, and how much of it came per second of late. Without news it falls towards 0."""

    #: Seconds that "of late" means, and between two remembered moments.
    WINDOW = 10.0
    APART = 0.5

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._count = 0
        self._moments = deque([(clock(), 0)], maxlen=round(self.WINDOW / self.APART) + 1)

    def add(self, amount: int) -> None:
        now = self._clock()
        with self._lock:
            self._count += amount
            if now - self._moments[-1][0] >= self.APART:
                self._moments.append((now, self._count))

    @property
    def count(self) -> int:
        return self._count

    def per_second(self) -> float:
        """0 before the first moments have passed."""
        with self._lock:
            now, count, moments = self._clock(), self._count, list(self._moments)
        old = [moment for moment in moments if now - moment[0] >= self.WINDOW]
        since, before = old[-1] if old else moments[0]
        return (count - before) / (now - since) if now - since >= self.APART / 2 else 0.0


class Stopwatch:
    """A context: the seconds during which at least one thread is inside, up to now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._inside = 0
        self._since = 0.0
        self._total = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._since = self._clock()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._total += self._clock() - self._since

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._total + (self._clock() - self._since if self._inside else 0.0)


class Curve:
    """A long series in few points: means over stretches, which double when there are too many."""

    #: There are at least half as many points, once there were enough values.
    MOST = 256

    def __init__(self) -> None:
        self.count = 0
        self._stretch = 1
        self._means: list[float] = []
        self._rest: list[float] = []

    def extend(self, values: Sequence[float]) -> None:
        """Take what is new. What it costs depends on that alone."""
        self.count += len(values)
        self._rest.extend(values)
        while len(self._rest) >= self._stretch:
            whole = len(self._rest) // self._stretch * self._stretch
            self._means += [
                sum(self._rest[start : start + self._stretch]) / self._stretch
                for start in range(0, whole, self._stretch)
            ]
            del self._rest[:whole]
            while len(self._means) > self.MOST:
                self._halve()

    def _halve(self) -> None:
        if len(self._means) % 2:
            self._rest[:0] = [self._means.pop()] * self._stretch
        pairs = zip(self._means[::2], self._means[1::2], strict=True)
        self._means = [(first + second) / 2 for first, second in pairs]
        self._stretch *= 2

    def points(self) -> list[tuple[int, float]]:
        """Each mean, with the number of values up to the end of its stretch."""
        ends = range(self._stretch, self.count + 1, self._stretch)
        return list(zip(ends, self._means, strict=True))
