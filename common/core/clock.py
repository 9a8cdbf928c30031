"""Time as a dependency: code that waits takes a clock, so that tests of waiting do not sleep."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from threading import Event


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


class SystemClock:
    """The operating system's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float) -> bool:
        return event.wait(seconds)


SYSTEM_CLOCK = SystemClock()
