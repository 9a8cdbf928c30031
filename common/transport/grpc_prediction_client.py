"""The passive party's side of serving: calls of the service `Prediction`.

gRPC errors are converted here: callers only see a `FloristError` with an explanation.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Self, TypeVar

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
from florist.common.transport.channel import Traffic
from florist.common.transport.grpc_dialer import keep_trying, pinned_channel
from florist.common.transport.grpc_prediction_server import MODEL, RETRY_AFTER
from florist.common.transport.grpc_streams import REQUIRED_TLS, TLS, shown
from florist.common.transport.messages import PredictionReply, ServingTerms
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.tls_probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from florist.common.transport.credentials import Credentials
    from florist.common.transport.messages import PredictionRequest, ServingOffer

log = logging.getLogger("florist.serving")

#: Model names are sent in metadata, which allows no other characters.
_MODEL_NAME = re.compile(r"[0-9A-Za-z-]{1,64}")
#: Seconds to wait for a request that is being computed when a stream ends.
_READING = 5.0
#: Seconds between two checks, after failed calls, whether the peer has a new certificate; also the
#: maximum duration of one check.
_RENEWAL = 2.0


R = TypeVar("R", PredictionReply, ServingTerms)


class PeerBusy(TransportError):  # noqa: N818 - it reads as what happened
    """The peer's limits are reached; `retry_after` says when to try again, in seconds."""

    advice = "Request fewer rows, or retry later; the peer sets the limits (serving.limits)."

    def __init__(self, reason: str, retry_after: float) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class ServingRefused(ConfigurationError):  # noqa: N818
    """The peer serves another model, or uses another agreement."""

    advice = "Serve with the two halves of one training run and with the same agreement."


class PredictionConnection:
    """A connection to a party that serves predictions; thread-safe."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None,
        peer_name: str,
        certificate: bytes | None,
        answer: float,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._peer_name = peer_name
        self._answer = answer
        #: Bytes of messages, both ways.
        self.traffic = Traffic()
        self._renewing = Lock()
        self._next_renewal = 0.0
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._use(certificate)

    def _use(self, certificate: bytes | None) -> None:
        """Open a channel to the owner of `certificate`."""
        channel = pinned_channel(self._address, self._credentials, self._peer_name, certificate)
        self._certificate = certificate
        self._channel = channel
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
        """Connect to the party that serves at `address`, and return also its terms.

        Args:
            address: `host:port`.
            credentials: None connects without TLS.
            peer_name: the required common name of the listener's certificate.
            offer: this party's half of the model.
            timeout: seconds to keep trying.
            answer: seconds to wait for the answer to one request.
            on_wait: called with the reason for waiting, when it changes and every few seconds.

        Raises:
            PeerUnavailable: the party could not be reached in time.
            ServingRefused: the party serves another model.
            TransportError: at once, if waiting cannot help.
        """

        def connect(certificate: bytes | None, seconds: float) -> tuple[Self, ServingTerms]:
            connection = cls(address, credentials, peer_name, certificate, answer)
            try:
                return connection, connection.open(offer, seconds)
            except PeerLost as error:
                connection.close()
                raise PeerUnavailable(error.reason) from None
            except BaseException:
                connection.close()
                raise

        return keep_trying(address, credentials, peer_name, timeout, connect, on_wait)

    def open(self, offer: ServingOffer, timeout: float) -> ServingTerms:
        """Send this party's offer and return the peer's terms. Call it once, before all others."""
        with self._errors():
            data, call = self._open.with_call(self._sent(offer), timeout=timeout)
            tls = dict(call.initial_metadata()).get(TLS)
        if self._credentials is not None and tls != REQUIRED_TLS:
            raise TransportError(f"the connection uses {shown(str(tls))}; TLS 1.3 is required")
        terms = self._received(ServingTerms, data)
        if not _MODEL_NAME.fullmatch(terms.model) or not terms.max_rows:
            raise ProtocolViolation(
                "the peer's terms contain no valid model name, or allow no rows"
            )
        self._metadata = ((MODEL, terms.model),)
        return terms

    def is_ready(self, timeout: float) -> bool:
        """Whether the peer reports that it serves predictions now."""
        request = health_pb2.HealthCheckRequest(service=codec.PREDICTION_SERVICE)
        try:
            answer = self._health(request, timeout=timeout)
        except grpc.RpcError:
            self._renew()
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def predict(self, request: PredictionRequest) -> PredictionReply:
        """Send one request and return the reply."""
        data = self._sent(request)
        with self._errors():
            answer = self._predict(data, timeout=self._answer, metadata=self._metadata)
        return self._received(PredictionReply, answer)

    def stream(self, requests: Iterable[PredictionRequest]) -> Iterator[PredictionReply]:
        """The replies, in order. Another thread reads `requests`, ahead of the replies.

        Errors of the iterable `requests` are raised here.

        Raises:
            ProtocolViolation: the peer sent more or fewer replies than requests.
        """
        source = _Source(requests, self._sent)
        answered = 0
        call = self._stream(source, metadata=self._metadata)
        try:
            with self._errors():
                for answer in call:
                    answered += 1
                    if answered > source.sent:
                        raise ProtocolViolation("the peer sent more replies than requests")
                    yield self._received(PredictionReply, answer)
        except FloristError:
            if source.error is not None:
                raise source.error from None
            raise
        finally:
            call.cancel()
            source.close()
        if source.error is not None:
            raise source.error
        if answered < source.sent:
            raise ProtocolViolation("the peer sent fewer replies than requests")

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

    def _sent(self, message: PredictionRequest | ServingOffer) -> bytes:
        data = codec.encode_serving(message)
        self.traffic.count_sent(len(data), type(message).__name__)
        return data

    def _received(self, kind: type[R], data: bytes) -> R:
        self.traffic.count_received(len(data), kind.__name__)
        return codec.decode_serving(kind, data)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise self._converted(error) from None

    def _converted(self, error: grpc.RpcError) -> FloristError:
        details, peer = shown(error.details()), f"{self._peer_name} at {self._address}"
        match error.code():
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return PeerBusy(f"{peer} is busy: {details}", _retry_after(error))
            case grpc.StatusCode.FAILED_PRECONDITION:
                return ServingRefused(f"{peer} refuses to serve this party: {details}")
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                return TransportError(f"{peer} refused this party: {details}")
            case grpc.StatusCode.UNIMPLEMENTED:
                return TransportError(
                    f"{peer} does not serve predictions; start it with `florist-party --role "
                    "active --stage serve` in the same release"
                )
            case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.INTERNAL:
                return PeerFailed(f"{peer} refused a request: {details}")
            case code:
                self._renew()
                late = code is grpc.StatusCode.DEADLINE_EXCEEDED
                why = "no answer in time" if late else details
                return PeerLost(f"{peer} does not serve predictions now: {why}")

    def _renew(self) -> None:
        """Accept the peer's new certificate, if it has one since its last start.

        A channel accepts one certificate only. The new one is checked like the first.
        """
        if self._credentials is None or not self._renewing.acquire(blocking=False):
            return
        try:
            if time.monotonic() < self._next_renewal:
                return
            found = probe(self._address, self._credentials, self._peer_name, _RENEWAL)
            if found != self._certificate:
                log.info("%s has a new certificate", self._peer_name)
                old = self._channel
                self._use(found)
                old.close()
        except FloristError as error:
            log.debug("no connection to %s: %s", self._peer_name, error.reason)
        finally:
            self._next_renewal = time.monotonic() + _RENEWAL
            self._renewing.release()


class _Source:
    """Encodes requests for gRPC's thread and remembers an error of the iterable."""

    def __init__(
        self, requests: Iterable[PredictionRequest], encode: Callable[[PredictionRequest], bytes]
    ) -> None:
        self._requests = iter(requests)
        self._encode = encode
        #: The number of requests sent so far.
        self.sent = 0
        self.error: Exception | None = None
        #: Held while a request is being read and computed.
        self._reading = Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        with self._reading:
            try:
                data = self._encode(next(self._requests))
            except StopIteration:
                self._requests = iter(())  # released here, before the last reply is awaited
                raise
            except Exception as error:  # noqa: BLE001 - `stream` raises it
                self.error = error
                raise StopIteration from None
        self.sent += 1
        return data

    def close(self) -> None:
        """Read no more requests, and wait for the one that is being read.

        Computing a request uses native code, in which gRPC's thread must not be when the process
        exits. Gives up after some seconds: the source of the requests may be waiting for something.
        """
        if self._reading.acquire(timeout=_READING):
            self._requests = iter(())
            self._reading.release()


def _retry_after(error: grpc.RpcError) -> float:
    """Seconds to wait, as sent by the peer, between 0 and 120."""
    found = [entry.value for entry in error.trailing_metadata() or () if entry.key == RETRY_AFTER]
    try:
        return min(max(float(found[0]), 0.0), 120.0)
    except (IndexError, ValueError):
        return 1.0
