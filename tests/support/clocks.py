"""Clocks for tests of waiting, which then take no time."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Condition, Event, Lock
from typing import TYPE_CHECKING

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds between two looks of a waiting thread at a `ManualClock`.
_POLL = 0.001


class FakeClock:
    """A clock that `sleep` moves, without sleeping; waits for others never time out."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        #: The lengths of all sleeps, in order.
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    def wait(self, event: Event, seconds: float) -> bool:  # noqa: ARG002 - they do not pass
        return event.wait()

    def wait_on(self, condition: Condition, seconds: float | None) -> None:  # noqa: ARG002
        condition.wait()


class ManualClock:
    """A clock for several threads: they wait until the test moves the time."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._deadlines: list[float] = []
        self._lock = Lock()

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.wait(Event(), seconds)

    def wait(self, event: Event, seconds: float) -> bool:
        with self._waiting(seconds) as deadline:
            while not event.wait(_POLL) and self._now < deadline:
                pass
        return event.is_set()

    def wait_on(self, condition: Condition, seconds: float | None) -> None:
        if seconds is None:
            condition.wait()
            return
        with self._waiting(seconds):
            condition.wait(_POLL)  # once: the caller looks for changes, and waits again

    def run(self, seconds: float, ready: Callable[[int], bool], stop: Callable[[], bool]) -> None:
        """Move the time by `seconds`, from one deadline of a waiting thread to the next.

        Before each move, wait until `ready`, which is called with the number of waiting threads.
        End early when `stop` is true.
        """
        end = self._now + seconds

        def moved() -> bool:
            with self._lock:
                if any(deadline <= self._now for deadline in self._deadlines):
                    return False  # a thread has not noticed yet that its wait is over
                if not ready(len(self._deadlines)):
                    return False
                self._now = min([end, *self._deadlines])
                return True

        while self._now < end and not stop():
            wait_until(lambda: stop() or moved(), within=10)

    @contextmanager
    def _waiting(self, seconds: float) -> Iterator[float]:
        """Register a wait; yields its deadline."""
        with self._lock:
            deadline = self._now + seconds
            self._deadlines.append(deadline)
        try:
            yield deadline
        finally:
            with self._lock:
                self._deadlines.remove(deadline)
