"""What the active party's service does for a call; the channel knows it by this alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from threading import Event

    from florist.common.transport.messages import (
        PredictionReply,
        PredictionRequest,
        ServingOffer,
        ServingTerms,
    )


class PredictionHandler(Protocol):
    """Answers a peer that is known to be the peer. Safe to use from many threads."""

    def open(self, offer: ServingOffer) -> ServingTerms:
        """Compare the peer's half with ours.

        Raises:
            RequestRefused: they do not belong together.
        """
        ...

    def check_model(self, name: str) -> None:
        """Refuse a call that is meant for another model than the one that is served.

        Raises:
            RequestRefused: it is.
        """
        ...

    def predict(self, request: PredictionRequest, patience: Event | None = None) -> PredictionReply:
        """Answer one request.

        Args:
            request: as it came, not checked yet.
            patience: given, the request waits until the peer's limit of rows allows it, or the
                event is set; else it is refused at once.

        Raises:
            RequestRefused: it cannot be answered, or not now.
        """
        ...
