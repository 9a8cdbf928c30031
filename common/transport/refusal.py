"""Refusals of prediction requests, with a reason for the caller."""

from __future__ import annotations

from enum import Enum, auto


class RefusalReason(Enum):
    """What the caller can do about a refusal."""

    #: Correct the request.
    MALFORMED = auto()
    #: Correct the configuration: the parties do not serve the same model or agreement.
    MISMATCH = auto()
    #: Request fewer rows, or retry later.
    OVER_LIMIT = auto()
    #: Retry later or elsewhere: the service is stopping.
    STOPPING = auto()


class RequestRefused(Exception):  # noqa: N818 - it reads as what happened
    """A request is refused. The peer sees the reason, so it must not contain private data."""

    def __init__(self, why: RefusalReason, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.why = why
        self.reason = reason
        #: Seconds after which the same request may be answered; None if unknown.
        self.retry_after = retry_after
