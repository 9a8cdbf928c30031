"""Wall-clock time of the parts of a stage."""

from __future__ import annotations

import time


class StageTimer:
    """Measures the parts of a stage in seconds; a part that occurs again adds up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, part: str) -> None:
        """Count the time since the previous part ended towards `part`."""
        now = time.monotonic()
        self.seconds[part] = round(self.seconds.get(part, 0.0) + now - self._last, 3)
        self._last = now
