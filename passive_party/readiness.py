"""Whether the peer serves predictions, asked at most once in a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from florist.common.core.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.clock import Clock

#: Seconds for which an answer is reused.
LIFETIME = 2.0


class CachedReadiness:
    """Reuses the result of a probe for `LIFETIME` seconds, also if it failed.

    `/ready` needs no token. Without the cache, anyone who reaches the port could make this party
    call its peer at will and occupy the threads that serve predictions.
    """

    def __init__(self, probe: Callable[[], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        """Use `probe`, which may block; it runs in a thread, one call at a time."""
        self._probe = probe
        self._clock = clock
        self._lock = asyncio.Lock()
        self._is_ready = False
        self._expires: float | None = None

    async def is_ready(self) -> bool:
        """Return the result of the last probe, or of a new one if that is too old."""
        async with self._lock:  # concurrent requests wait for one probe and share its result
            if self._expires is None or self._clock.now() >= self._expires:
                self._is_ready = await run_in_threadpool(self._probe)
                self._expires = self._clock.now() + LIFETIME
            return self._is_ready
