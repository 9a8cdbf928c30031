"""Time as a dependency: code that waits takes a clock, so that tests of waiting do not sleep."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from threading import Condition, Event


class Clock(Protocol):
    """Seconds since an arbitrary moment, and ways to wait."""

    def now(self) -> float:
        """Return the current time in seconds; it never goes backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...

    def wait(self, event: Event, seconds: float) -> bool:
        """Wait until the event is set, for this many seconds at most; return whether it is."""
        ...

    def wait_on(self, condition: Condition, seconds: float | None) -> None:
        """Wait until the condition is notified, for this many seconds at most.

        The caller holds the condition's lock and checks afterwards what has changed: the wait may
        also end early for no reason. None waits without a limit.
        """
        ...


class SystemClock:
    """The operating system's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float) -> bool:
        return event.wait(seconds)

    def wait_on(self, condition: Condition, seconds: float | None) -> None:
        condition.wait(seconds)


SYSTEM_CLOCK = SystemClock()
