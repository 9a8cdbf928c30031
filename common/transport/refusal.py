"""A request that is not answered, and why: told to whoever asked, in one sentence."""

from __future__ import annotations

from enum import Enum, auto


class RefusalReason(Enum):
    """What whoever asked can do about it."""

    #: Ask otherwise: the request is wrong.
    MALFORMED = auto()
    #: Mend the set-up: the two parties do not serve with the same model or agreement.
    MISMATCH = auto()
    #: Ask less, or later.
    OVER_LIMIT = auto()
    #: Ask later, or elsewhere: the service stops.
    STOPPING = auto()


class RequestRefused(Exception):  # noqa: N818 - it reads as what happened
    """The reason is for the peer, so it holds nothing of ours that the peer may not know."""

    def __init__(self, why: RefusalReason, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.why = why
        self.reason = reason
        #: Seconds after which the same request may be answered, where that can be told.
        self.retry_after = retry_after
