"""HTTP connections that are closed when the client sends no request.

uvicorn waits indefinitely for the head of a request and counts the connection towards its limit, so
a few hundred silent connections would block all other clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

#: Seconds within which the head of a request must arrive, after the connection or last response.
HEAD_TIMEOUT = 10.0


class TimedConnection(H11Protocol):
    """A protocol for uvicorn's `http` option that closes connections without a request in time."""

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
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if not _is_being_served(self.cycle):
            self.transport.close()


def _is_being_served(request: RequestResponseCycle | None) -> bool:
    """Return whether a response is in progress; `cycle` is None before the first request."""
    return request is not None and not request.response_complete
