"""HTTP connections that are not kept for those who say nothing.

uvicorn waits for ever for a request's head, and counts the connection among those that it serves
at once: a few hundred silent ones would keep everybody else out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

#: Seconds in which a request's head must have come, from the connection or the last answer on.
HEAD_TIME = 10.0


class TimedConnection(H11Protocol):
    """Give it to uvicorn as `http`: ends a connection without a whole head in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _expect_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_TIME, self._end_if_silent)

    def _end_if_silent(self) -> None:
        request = cast("RequestResponseCycle | None", self.cycle)  # None before the first
        if request is None or request.response_complete:
            self.transport.close()
