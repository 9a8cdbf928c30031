"""The active party's side of serving: the service `Prediction`, and gRPC's health service.

It admits one peer, identified by the name in its certificate; anyone with a certificate of the same
authority may request the health status. The prediction handler interprets the requests; the server
accepts or refuses them, counts them, and ends those that stall.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ProtocolViolation
from florist.common.transport import codec
from florist.common.transport.channel import Traffic
from florist.common.transport.daemon_pool import DaemonPool
from florist.common.transport.grpc_server import (
    CallerRejected,
    CallRefused,
    ListeningServer,
    bind,
    identify,
    port_of,
    require_tls,
    server_options,
)
from florist.common.transport.grpc_streams import TLS
from florist.common.transport.messages import PredictionRequest, ServingOffer
from florist.common.transport.rate_limited_log import RateLimitedLog
from florist.common.transport.refusal import RefusalReason, RequestRefused
from florist.common.transport.request_observer import NoObserver
from florist.common.transport.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.clock import Clock
    from florist.common.transport.credentials import Credentials
    from florist.common.transport.messages import PredictionReply, ServingTerms
    from florist.common.transport.prediction_handler import PredictionHandler
    from florist.common.transport.request_observer import RequestObserver

log = logging.getLogger("florist.serving")

#: Keys of a call's metadata: the requested model and, with a refusal, the seconds to wait.
MODEL = "florist-model"
RETRY_AFTER = "florist-retry-after"

CODES = {
    RefusalReason.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.OVER_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalReason.STOPPING: grpc.StatusCode.UNAVAILABLE,
}

#: What an observer is told about refusals with these statuses; others have their own names.
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT: "malformed",
    grpc.StatusCode.FAILED_PRECONDITION: "mismatch",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "over the limit",
    grpc.StatusCode.UNAVAILABLE: "stopping",
    grpc.StatusCode.UNAUTHENTICATED: "wrong caller",
    grpc.StatusCode.PERMISSION_DENIED: "wrong caller",
    grpc.StatusCode.INTERNAL: "internal error",
}

#: Threads beyond those of calls and streams: for health checks, and to refuse excess calls.
_SPARE_THREADS = 8
#: Seconds between two log lines about refusals for the same reason.
_LOG_EVERY = 10.0
#: Seconds for calls to notice that draining has ended.
_CANCEL = 1.0

R = TypeVar("R", PredictionRequest, ServingOffer)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server's own limits; the prediction handler limits the rows."""

    #: The maximum number of concurrent calls.
    calls: int
    #: The maximum number of concurrent streams.
    streams: int
    #: Seconds without progress after which a stream is cancelled.
    idle: float


class _StreamWatch:
    """Cancels streams whose peer neither sends nor reads."""

    def __init__(self, idle: float, clock: Clock) -> None:
        self._idle = idle
        self._clock = clock
        #: The time since which the server has been waiting for the peer.
        self._since: dict[grpc.ServicerContext, float] = {}
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="florist-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def expect(self, context: grpc.ServicerContext) -> None:
        """Start waiting for the peer."""
        self._since[context] = self._clock.now()

    def forget(self, context: grpc.ServicerContext) -> None:
        """Stop waiting for the peer."""
        self._since.pop(context, None)

    def _watch(self) -> None:
        while not self._clock.wait(self._stop, min(1.0, self._idle / 4)):
            late = self._clock.now() - self._idle
            for context, since in list(self._since.items()):
                if since < late:
                    log.warning("cancelled a stream without progress for %g s", self._idle)
                    self.forget(context)
                    context.cancel()


class PredictionServer(ListeningServer):
    """Serves predictions to one peer. Use it as a context manager, or close it."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None,
        peer_name: str,
        handler: PredictionHandler,
        settings: ServerSettings,
        observer: RequestObserver | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create a server; `start` opens the port.

        Args:
            address: `host:port` to listen on; port 0 chooses a free port.
            credentials: None listens without TLS and admits anyone.
            peer_name: the common name of the only certificate that is admitted.
            handler: answers the calls.
            settings: limits.
            observer: is told about each request; None tells nobody.
            clock: the clock for idle streams, log lines and latencies.
        """
        super().__init__()
        #: Bytes of messages, both ways.
        self.traffic = Traffic()
        self._observer = observer or NoObserver()
        self._clock = clock
        self._address = address
        self._credentials = credentials
        self._peer_name = peer_name
        self._handler = handler
        self._calls = Slots(settings.calls, "requests")
        self._streams = Slots(settings.streams, "streams")
        self._health_checks = Slots(_SPARE_THREADS // 2, "health checks")
        self._foreign_health_checks = Slots(_SPARE_THREADS // 4, "health checks of other callers")
        self._watch = _StreamWatch(settings.idle, clock)
        self._max_calls = settings.calls + settings.streams + _SPARE_THREADS
        self._pool = DaemonPool(self._max_calls)
        self._health = health.HealthServicer()
        self._refused = RateLimitedLog(lambda text: log.warning("%s", text), _LOG_EVERY, clock)
        self._draining = False
        #: Set when draining has ended.
        self._drained = Event()
        self._active_calls = 0
        self._changed = Condition()
        self._server: grpc.Server | None = None

    def start(self) -> str:
        self._set_health(serving=False)
        server = grpc.server(
            self._pool,
            handlers=[_Methods(self)],
            options=server_options(2 * self._max_calls),
        )
        self._address = bind(server, self._address, self._credentials, self._connections.connected)
        server.start()
        self._connections.start(port_of(self._address))
        self._watch.start()
        self._server = server
        self._set_health(serving=True)
        return self._address

    @property
    def address(self) -> str:
        """The address on which the server listens."""
        return self._address

    def drain(self, seconds: float) -> bool:
        """Refuse new calls and wait for the active ones; return whether all finished in time."""
        self._health.enter_graceful_shutdown()
        with self._changed:
            self._draining = True
        done = self.wait_until_idle(seconds)
        self._drained.set()
        return done

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no call is active; return whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._active_calls, seconds)

    def close(self) -> None:
        """Stop listening and cancel active calls. Takes seconds at most."""
        self._drained.set()
        self._watch.stop()
        self._connections.close()
        if self._server is not None:
            self._server.stop(_CANCEL).wait(2 * _CANCEL)
            self._pool.shutdown()

    # -- the gRPC methods --------------------------------------------------------------------------

    def open(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._admitted(context, self._calls, with_model=False) as tls:
            context.send_initial_metadata(((TLS, tls),))
            offer = self._decoded(ServingOffer, self._only(requests, context))
            return self._encoded(self._handler.open(offer))

    def predict(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._admitted(context, self._calls):
            return self._answer(self._only(requests, context))

    def predict_stream(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        try:
            with self._admitted(context, self._streams):
                self._watch.expect(context)
                for data in requests:
                    self._watch.forget(context)  # the server works now
                    reply = self._answer(data, self._drained)
                    self._watch.expect(context)
                    yield reply
                    self._watch.expect(context)
                    if self._drained.is_set():
                        raise _stopping()
        finally:
            self._watch.forget(context)

    def _answer(self, data: bytes, cancelled: Event | None = None) -> bytes:
        arrived = self._clock.now()
        request = self._decoded(PredictionRequest, data)
        reply = self._encoded(self._handler.predict(request, cancelled))
        self._observer.answered(self._clock.now() - arrived)
        return reply

    def _decoded(self, kind: type[R], data: bytes) -> R:
        self.traffic.count_received(len(data), kind.__name__)
        try:
            return codec.decode_serving(kind, data)
        except ProtocolViolation as violation:
            raise RequestRefused(RefusalReason.MALFORMED, violation.reason) from None

    def _encoded(self, message: PredictionReply | ServingTerms) -> bytes:
        data = codec.encode_serving(message)
        self.traffic.count_sent(len(data), type(message).__name__)
        return data

    def check_health(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Answer anyone with a certificate of the authority, even while the service is stopping."""
        with self._refusals(context), self._health_slot(context):
            try:
                request = health_pb2.HealthCheckRequest.FromString(self._only(requests, context))
            except DecodeError:
                raise RequestRefused(
                    RefusalReason.MALFORMED, "the request is not a valid health check"
                ) from None
            answer: health_pb2.HealthCheckResponse = self._health.Check(request, context)
            return answer.SerializeToString()

    @contextmanager
    def _health_slot(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Hold a slot for a health check; other callers cannot use up those of the peer."""
        try:
            identify(context, self._credentials, self._peer_name)
        except CallerRejected:
            require_tls(context)
            try:
                with self._foreign_health_checks.one():
                    yield
            except RequestRefused as refused:
                raise CallerRejected(CODES[refused.why], refused.reason) from None
        else:
            with self._health_checks.one():
                yield

    def _only(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """The only request of a call; the peer has as much time to send it as in a stream."""
        self._watch.expect(context)
        try:
            return next(requests)
        except StopIteration:
            raise RequestRefused(RefusalReason.MALFORMED, "the call contains no request") from None
        finally:
            self._watch.forget(context)

    @contextmanager
    def _admitted(
        self, context: grpc.ServicerContext, slots: Slots, *, with_model: bool = True
    ) -> Iterator[str]:
        """A call from the peer that is within the limits; yields its TLS version."""
        with self._refusals(context):
            tls = self._identify(context, self._credentials, self._peer_name)
            with self._counted(), slots.one():
                if with_model:
                    self._handler.check_model(_metadata(context, MODEL))
                yield tls

    @contextmanager
    def _refusals(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Convert errors of a call into gRPC statuses."""
        try:
            yield
        except CallRefused as refusal:
            self._refuse(context, refusal)
        except RequestRefused as refused:
            if refused.retry_after is not None:
                context.set_trailing_metadata(((RETRY_AFTER, f"{refused.retry_after:.3f}"),))
            self._refuse(context, CallRefused(CODES[refused.why], refused.reason))
        except grpc.RpcError:
            raise  # the peer has disconnected: nobody to report to
        except Exception as error:  # one bad call must not stop the service
            log.exception("internal error in a call:", exc_info=error)
            self._refuse(context, CallRefused(grpc.StatusCode.INTERNAL, "an internal error"))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            if self._draining:
                raise _stopping()
            self._active_calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._active_calls -= 1
                self._changed.notify_all()

    def _refuse(self, context: grpc.ServicerContext, refusal: CallRefused) -> NoReturn:
        self._refused.tell(f"refused {unquote(context.peer())}: {refusal.reason}", refusal.kind)
        self._observer.refused(_REFUSALS.get(refusal.code, refusal.code.name.lower()))
        context.abort(refusal.code, refusal.reason)

    def _set_health(self, *, serving: bool) -> None:
        states = health_pb2.HealthCheckResponse
        status = states.SERVING if serving else states.NOT_SERVING
        for service in ("", codec.PREDICTION_SERVICE):
            self._health.set(service, status)


class _Methods(grpc.GenericRpcHandler):
    """Routes the methods; messages stay bytes, because the codec decodes them.

    A call with one request is handled as a stream of one, which is the same on the wire: otherwise
    gRPC would wait for the request without limit, before the server can check who calls.
    """

    def __init__(self, server: PredictionServer) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            f"/{health.SERVICE_NAME}/Check": grpc.stream_unary_rpc_method_handler(
                server.check_health
            ),
            codec.OPEN: grpc.stream_unary_rpc_method_handler(server.open),
            codec.PREDICT: grpc.stream_unary_rpc_method_handler(server.predict),
            codec.PREDICT_STREAM: grpc.stream_stream_rpc_method_handler(server.predict_stream),
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handlers.get(handler_call_details.method)


def _metadata(context: grpc.ServicerContext, name: str) -> str:
    for key, value in context.invocation_metadata():
        if key == name:
            return str(value)
    return ""


def _stopping() -> RequestRefused:
    return RequestRefused(RefusalReason.STOPPING, "the service is being stopped")
