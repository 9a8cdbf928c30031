"""The passive party's end of serving: calls of the service `Prediction`, and their failures.

gRPC's errors end here: whoever calls sees a `FloristError` with a sentence.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import grpc
from grpc_health.v1 import health, health_pb2

from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
    TransportError,
)
from florist.common.transport import codec
from florist.common.transport.credentials import NotYet
from florist.common.transport.grpc_dialer import keep_trying, open_channel
from florist.common.transport.grpc_prediction_server import MODEL, RETRY_AFTER
from florist.common.transport.grpc_streams import REQUIRED_TLS, TLS, shown
from florist.common.transport.messages import PredictionReply, ServingTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from florist.common.transport.credentials import Credentials
    from florist.common.transport.messages import PredictionRequest, ServingOffer

log = logging.getLogger("florist.serving")

#: It goes back in metadata, which hold no other characters.
_MODEL_NAME = re.compile(r"[0-9A-Za-z-]{1,64}")


class PeerBusy(TransportError):  # noqa: N818 - it reads as what happened
    """The peer's limits are reached; the message says when to try again."""

    advice = "Ask for less, or later; the limits are the peer's (serving.limits)."

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class ServingRefused(ConfigurationError):  # noqa: N818
    """The peer serves another model, or by another agreement."""

    advice = "Make both parties serve with the halves of one training run, and one agreement."


class PredictionLine:
    """A connection to a party that serves predictions. Safe to use from many threads."""

    def __init__(
        self, channel: grpc.Channel, address: str, peer_name: str, *, with_tls: bool, answer: float
    ) -> None:
        self._channel = channel
        self._address = address
        self._peer_name = peer_name
        self._with_tls = with_tls
        self._answer = answer
        self._open: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(codec.OPEN)
        self._predict: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            codec.PREDICT
        )
        self._stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            codec.PREDICT_STREAM
        )
        self._health: grpc.UnaryUnaryMultiCallable[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ] = channel.unary_unary(
            f"/{health.SERVICE_NAME}/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        self._metadata: tuple[tuple[str, str], ...] = ()

    @classmethod
    def dial(
        cls,
        address: str,
        credentials: Credentials | None,
        peer_name: str,
        offer: ServingOffer,
        *,
        timeout: float,
        answer: float,
        on_wait: Callable[[str], None] | None = None,
    ) -> tuple[Self, ServingTerms]:
        """Reach the party that serves at `address`, and what it answers to our offer.

        Args:
            address: `host:port`.
            credentials: None dials in plain text.
            peer_name: must be the common name of the listener's certificate.
            offer: what we hold.
            timeout: seconds to keep trying.
            answer: seconds to wait for the answer to one request.
            on_wait: hears why it takes so long: on news, and every few seconds.

        Raises:
            NotYet: it could not be reached in time.
            ServingRefused: it serves with another model.
            TransportError: at once, when waiting cannot mend it.
        """

        def connect(patience: float) -> tuple[Self, ServingTerms]:
            channel = open_channel(address, credentials, peer_name)
            line = cls(channel, address, peer_name, with_tls=credentials is not None, answer=answer)
            try:
                return line, line.open(offer, patience)
            except PeerLost as error:
                line.close()
                raise NotYet(error.reason) from None
            except BaseException:
                line.close()
                raise

        return keep_trying(address, credentials, peer_name, timeout, connect, on_wait)

    def open(self, offer: ServingOffer, timeout: float) -> ServingTerms:
        """Tell what we hold; hear what the peer holds and allows. First of all, and once."""
        with self._errors():
            data, call = self._open.with_call(codec.encode_serving(offer), timeout=timeout)
            tls = dict(call.initial_metadata()).get(TLS)
        if self._with_tls and tls != REQUIRED_TLS:
            raise TransportError(f"the connection uses {shown(str(tls))}; TLS 1.3 is required")
        terms = codec.decode_serving(ServingTerms, data)
        if not _MODEL_NAME.fullmatch(terms.model) or not terms.max_rows:
            raise ProtocolViolation("the peer's terms name no model, or allow no rows")
        self._metadata = ((MODEL, terms.model),)
        return terms

    def is_ready(self, timeout: float) -> bool:
        """Whether the peer says that it serves predictions now."""
        request = health_pb2.HealthCheckRequest(service=codec.PREDICTION_SERVICE)
        try:
            answer = self._health(request, timeout=timeout)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def predict(self, request: PredictionRequest) -> PredictionReply:
        """The answer to one request."""
        data = codec.encode_serving(request)
        with self._errors():
            answer = self._predict(data, timeout=self._answer, metadata=self._metadata)
        return codec.decode_serving(PredictionReply, answer)

    def stream(self, requests: Iterable[PredictionRequest]) -> Iterator[PredictionReply]:
        """The answers, in order. `requests` is read by another thread, ahead of the answers.

        What reading `requests` raises is raised here.

        Raises:
            ProtocolViolation: there are more answers than requests, or fewer.
        """
        source = _Source(requests)
        answered = 0
        call = self._stream(source, metadata=self._metadata)
        try:
            with self._errors():
                for answer in call:
                    answered += 1
                    if answered > source.asked:
                        raise ProtocolViolation("the peer answers more than it was asked")
                    yield codec.decode_serving(PredictionReply, answer)
        except FloristError:
            if source.error is not None:
                raise source.error from None
            raise
        finally:
            call.cancel()
        if source.error is not None:
            raise source.error
        if answered < source.asked:
            raise ProtocolViolation("the peer ended its answers early")

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise self._meaning(error) from None

    def _meaning(self, error: grpc.RpcError) -> FloristError:
        details, place = shown(error.details()), f"{self._peer_name} at {self._address}"
        match error.code():
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return PeerBusy(f"{place} is busy: {details}", _retry_after(error))
            case grpc.StatusCode.FAILED_PRECONDITION:
                return ServingRefused(f"{place} refuses to serve this party: {details}")
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                return TransportError(f"{place} refused this party: {details}")
            case grpc.StatusCode.UNIMPLEMENTED:
                return TransportError(
                    f"{place} serves no predictions: it is to be started with "
                    "`florist-party --role active --stage serve`, in the same release"
                )
            case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.INTERNAL:
                return PeerFailed(f"{place} refused a request: {details}")
            case code:
                late = code is grpc.StatusCode.DEADLINE_EXCEEDED
                why = "no answer in time" if late else details
                return PeerLost(f"{place} serves no predictions now: {why}")


class _Source:
    """Requests as gRPC's thread reads them, encoded; remembers what reading them raised."""

    def __init__(self, requests: Iterable[PredictionRequest]) -> None:
        self._requests = iter(requests)
        #: How many were read so far.
        self.asked = 0
        self.error: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            data = codec.encode_serving(next(self._requests))
        except StopIteration:
            raise
        except Exception as error:  # noqa: BLE001 - kept, and raised by `stream`
            self.error = error
            raise StopIteration from None
        self.asked += 1
        return data


def _retry_after(error: grpc.RpcError) -> float:
    """Seconds, as the peer says; within reason."""
    found = [entry.value for entry in error.trailing_metadata() or () if entry.key == RETRY_AFTER]
    try:
        return min(max(float(found[0]), 0.0), 120.0)
    except (IndexError, ValueError):
        return 1.0
