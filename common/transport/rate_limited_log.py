"""Log messages that repeat are passed on only now and then."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.clock import Clock

#: The maximum number of reasons that are remembered.
_MAX_REASONS = 64


class RateLimitedLog:
    """Passes on at most one text per reason and interval; thread-safe.

    The next text for the same reason says how many were suppressed.
    """

    def __init__(
        self, tell: Callable[[str], None] | None, every: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Pass texts on to `tell`, for the same reason at most once in `every` seconds."""
        self._tell = tell
        self._every = every
        self._clock = clock
        #: For each reason, the time of its last text and how many were suppressed since.
        self._reasons: dict[str, tuple[float, int]] = {}
        self._lock = Lock()

    def tell(self, text: str, reason: str | None = None) -> None:
        """Pass on `text`, unless one was passed on for the same reason less than an interval ago.

        Args:
            text: the message.
            reason: identifies repetitions of texts that differ in details, such as a caller's
                address; None means the text itself.
        """
        if self._tell is None:
            return
        key, now = reason or text, self._clock.now()
        with self._lock:
            last, suppressed = self._reasons.pop(key, (now - self._every, 0))
            is_due = now - last >= self._every
            self._reasons[key] = (now, 0) if is_due else (last, suppressed + 1)
            if len(self._reasons) > _MAX_REASONS:
                self._reasons.pop(next(iter(self._reasons)))
        if is_due:
            more = f" (and {suppressed:,} more like this)" if reason and suppressed else ""
            self._tell(f"{text}{more}")
