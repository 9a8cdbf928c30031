"""The interface between the prediction server and the code that answers requests."""

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
    """Answers the requests of the authenticated peer; thread-safe."""

    def open(self, offer: ServingOffer) -> ServingTerms:
        """Compare the peer's half of the model with this party's.

        Raises:
            RequestRefused: the halves do not belong together.
        """
        ...

    def check_model(self, name: str) -> None:
        """Check that a call is meant for the model that is served.

        Raises:
            RequestRefused: the call is meant for another model.
        """
        ...

    def predict(
        self, request: PredictionRequest, cancelled: Event | None = None
    ) -> PredictionReply:
        """Answer one request.

        Args:
            request: as received, not checked yet.
            cancelled: if given, the request waits until the row limit allows it or the event is
                set; otherwise it is refused at once.

        Raises:
            RequestRefused: the request cannot be answered, or not now.
        """
        ...
