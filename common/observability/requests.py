"""The requests to a prediction service: how many, how fast they are answered, which are refused."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.pace import Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.core.clock import Clock

#: Requests over which the quantiles of the latency are computed.
KEPT = 1024


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """The requests so far. Latencies are in seconds, of the last `KEPT` answers."""

    answered: int
    per_second: float
    #: None before the first answer.
    median: float | None
    p99: float | None
    #: Refused requests by reason.
    refused: dict[str, int]


class RequestGauge:
    """Counts requests; safe to use from several threads."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rate = Rate(clock)
        self._lock = Lock()
        self._seconds: deque[float] = deque(maxlen=KEPT)
        self._refused: Counter[str] = Counter()

    def answered(self, seconds: float) -> None:
        """Count a request that was answered after this time."""
        self._rate.add(1)
        with self._lock:
            self._seconds.append(seconds)

    def refused(self, reason: str) -> None:
        """Count a request that was refused; there are few different reasons."""
        with self._lock:
            self._refused[reason] += 1

    def read(self) -> RequestFigures:
        """Return the figures so far."""
        with self._lock:
            seconds, refused = sorted(self._seconds), dict(self._refused)
        return RequestFigures(
            answered=self._rate.count,
            per_second=self._rate.per_second(),
            median=_quantile(seconds, 0.5),
            p99=_quantile(seconds, 0.99),
            refused=refused,
        )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed."""
    if not ordered:
        return None
    rank = -(-len(ordered) * round(share * 100) // 100)
    return ordered[max(rank, 1) - 1]
