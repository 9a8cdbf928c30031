"""How many rows per minute a peer may ask predictions for."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from florist.common.transport.refusal import RefusalReason, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable


class RowBudget:
    """A token bucket: holds the rows of one minute at most, and fills up evenly.

    So a peer that was quiet may ask for a minute's rows at once, and for no more than two minutes'
    rows in any minute.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._left = float(per_minute)
        self._filled = clock()
        self._lock = Lock()

    def take(self, rows: int) -> float:
        """Take so many rows, and return 0; or take none, and return the seconds until there are.

        Infinite if a whole minute has fewer.
        """
        if rows > self.per_minute:
            return float("inf")
        with self._lock:
            now = self._clock()
            gained = (now - self._filled) * self.per_minute / 60
            self._left = min(self._left + gained, float(self.per_minute))
            self._filled = now
            if self._left >= rows:
                self._left -= rows
                return 0.0
            return (rows - self._left) * 60 / self.per_minute

    def demand(self, rows: int) -> None:
        """Take so many rows now.

        Raises:
            RequestRefused: there are not as many.
        """
        if wait := self.take(rows):
            reason = f"the limit is {self.per_minute:,} rows per minute"
            if wait == float("inf"):
                raise RequestRefused(
                    RefusalReason.OVER_LIMIT, f"{reason}: {rows:,} at once are too many"
                )
            raise RequestRefused(
                RefusalReason.OVER_LIMIT, f"{reason}: try again in {wait:.1f} s", wait
            )
