"""Log messages that repeat are passed on only now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.clock import Clock


class RateLimitedLog:
    """Passes a text on if it differs from the last one, and otherwise once per interval."""

    def __init__(
        self, tell: Callable[[str], None] | None, every: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Pass texts on to `tell`, the same text at most once in `every` seconds."""
        self._tell = tell
        self._every = every
        self._clock = clock
        self._last_text = ""
        self._last_time = 0.0

    def tell(self, text: str) -> None:
        now = self._clock.now()
        is_due = text != self._last_text or now - self._last_time >= self._every
        if self._tell is not None and is_due:
            self._last_text, self._last_time = text, now
            self._tell(text)
