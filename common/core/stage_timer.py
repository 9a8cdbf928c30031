"""Wall-clock time of the parts of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from florist.common.core.clock import Clock


class StageTimer:
    """Measures the parts of a stage in seconds; a part that occurs again adds up."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        self._last = clock.now()

    def end(self, part: str) -> None:
        """Count the time since the previous part ended towards `part`."""
        now = self._clock.now()
        self.seconds[part] = round(self.seconds.get(part, 0.0) + now - self._last, 3)
        self._last = now
