"""Where a prediction service reports its state and its work."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from florist.common.observability.status import Status
    from florist.common.transport.channel import Traffic


@dataclass(frozen=True, slots=True)
class ServiceWatch:
    """Reports a prediction service to the status; by default to none. A `RequestObserver`."""

    status: Status | None = None

    def ready(
        self, traffic: Traffic, peer_is_up: Callable[[], bool] | None = None
    ) -> AbstractContextManager[None]:
        """Report the service as ready while the context lasts.

        `traffic` counts the bytes to and from the peer. `peer_is_up` is called every few seconds;
        it may take a moment.
        """
        return nullcontext() if self.status is None else self.status.serving(peer_is_up, traffic)

    def served(self, rows: int) -> None:
        """Count predictions."""
        if self.status is not None:
            self.status.count_rows(rows)

    def answered(self, seconds: float) -> None:
        """Count a request that was answered after this time."""
        if self.status is not None:
            self.status.requests.answered(seconds)

    def refused(self, reason: str) -> None:
        """Count a request that was refused."""
        if self.status is not None:
            self.status.requests.refused(reason)


#: For a service without a status page.
UNWATCHED = ServiceWatch()
