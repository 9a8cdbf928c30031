"""Limits the number of rows per minute for which a peer can request predictions."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.transport.refusal import RefusalReason, RequestRefused

if TYPE_CHECKING:
    from florist.common.core.clock import Clock


class RowBudget:
    """A token bucket that holds at most the rows of one minute and refills evenly.

    After a quiet period, a peer can request a minute's rows at once, and never more than two
    minutes' rows in any minute.
    """

    def __init__(self, per_minute: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._available = float(per_minute)
        self._refilled = clock.now()
        self._lock = Lock()

    def take(self, rows: int) -> float:
        """Take rows from the budget and return 0, or take none and return the time to wait.

        Returns:
            The seconds until enough rows are available; infinite if `rows` exceeds the limit per
            minute.
        """
        if rows > self.per_minute:
            return float("inf")
        with self._lock:
            now = self._clock.now()
            gained = (now - self._refilled) * self.per_minute / 60
            self._available = min(self._available + gained, float(self.per_minute))
            self._refilled = now
            if self._available >= rows:
                self._available -= rows
                return 0.0
            return (rows - self._available) * 60 / self.per_minute

    def demand(self, rows: int) -> None:
        """Take rows from the budget now.

        Raises:
            RequestRefused: not enough rows are available.
        """
        if wait := self.take(rows):
            reason = f"the limit is {self.per_minute:,} rows per minute"
            if wait == float("inf"):
                raise RequestRefused(
                    RefusalReason.OVER_LIMIT, f"{reason}: a request for {rows:,} exceeds it"
                )
            raise RequestRefused(
                RefusalReason.OVER_LIMIT, f"{reason}: try again in {wait:.1f} s", wait
            )
