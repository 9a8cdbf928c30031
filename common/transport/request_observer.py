"""Who is told about the requests to a prediction service."""

from __future__ import annotations

from typing import Protocol


class RequestObserver(Protocol):
    """Is told about each request; thread-safe, and fast."""

    def answered(self, seconds: float) -> None:
        """A request was answered, this long after it had arrived."""
        ...

    def refused(self, reason: str) -> None:
        """A request was refused; `reason` is one of a few words."""
        ...


class NoObserver:
    """Ignores all requests."""

    def answered(self, seconds: float) -> None:
        """Ignore an answer."""

    def refused(self, reason: str) -> None:
        """Ignore a refusal."""
