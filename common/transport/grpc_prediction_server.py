"""The active party's end of serving: the service `Prediction`, and gRPC's own health service.

Lets in one peer, by the name in its certificate; whoever has a certificate of the authority may ask
for the service's health. What a request means is the desk's business; here it is taken or refused,
counted, and not left to hang.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2

from florist.common.core.errors import ProtocolViolation
from florist.common.transport import codec
from florist.common.transport.daemon_pool import DaemonPool
from florist.common.transport.grpc_server import SERVER_OPTIONS, Refusal, bind, identify
from florist.common.transport.grpc_streams import TLS
from florist.common.transport.messages import PredictionRequest, ServingOffer
from florist.common.transport.refusal import RefusalReason, RequestRefused
from florist.common.transport.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from florist.common.transport.credentials import Credentials
    from florist.common.transport.prediction_handler import PredictionHandler

log = logging.getLogger("florist.serving")

#: A call's metadata: the model that is meant; and, with a refusal, the seconds to wait.
MODEL = "florist-model"
RETRY_AFTER = "florist-retry-after"

CODES = {
    RefusalReason.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.OVER_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalReason.STOPPING: grpc.StatusCode.UNAVAILABLE,
}

#: Threads beyond those of calls and streams: for health, and to refuse what is too much.
_SPARE_THREADS = 8
#: Seconds between two log lines about refusals of one kind.
_TELL_EVERY = 10.0
#: Seconds for calls to notice that the time to drain is over.
_CUT = 1.0

R = TypeVar("R", PredictionRequest, ServingOffer)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the server itself bounds; the rows are the desk's."""

    calls: int
    streams: int
    #: Seconds without progress after which a stream is ended.
    idle: float


class _StreamWatch:
    """Ends the streams whose peer neither sends nor reads."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        #: Since when it has been the peer's turn.
        self._since: dict[grpc.ServicerContext, float] = {}
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="florist-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def expect(self, context: grpc.ServicerContext) -> None:
        """From now on it is the peer's turn."""
        self._since[context] = time.monotonic()

    def forget(self, context: grpc.ServicerContext) -> None:
        """It no longer is."""
        self._since.pop(context, None)

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self._idle / 4)):
            late = time.monotonic() - self._idle
            for context, since in list(self._since.items()):
                if since < late:
                    log.warning("ended a stream that stood still for %g s", self._idle)
                    self.forget(context)
                    context.cancel()


class PredictionServer:
    """Serves one peer. Use as a context, or close it."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None,
        peer_name: str,
        desk: PredictionHandler,
        settings: ServerSettings,
    ) -> None:
        """Nothing happens before `start`.

        Args:
            address: `host:port` to listen at; port 0 takes a free one.
            credentials: None listens in plain text, and to anyone.
            peer_name: the common name of the one certificate that is let in.
            desk: answers the calls.
            settings: bounds.
        """
        self._address = address
        self._with_tls = credentials is not None
        self._credentials = credentials
        self._peer_name = peer_name
        self._desk = desk
        self._calls = Slots(settings.calls, "requests")
        self._streams = Slots(settings.streams, "streams")
        self._probes = Slots(_SPARE_THREADS // 2, "questions for health")
        self._watch = _StreamWatch(settings.idle)
        self._most = settings.calls + settings.streams + _SPARE_THREADS
        self._pool = DaemonPool(self._most)
        self._health = health.HealthServicer()
        #: When a refusal of each kind was last logged.
        self._told: dict[grpc.StatusCode, float] = {}
        self._draining = False
        #: Set when the time to drain is over.
        self._over = Event()
        self._under_way = 0
        self._changed = Condition()
        self._server: grpc.Server | None = None

    def start(self) -> str:
        """Listen, and be ready; return the address with the port in use.

        Raises:
            ConfigurationError: the address cannot be had.
        """
        self._set_health(serving=False)
        server = grpc.server(
            self._pool,
            handlers=[_Methods(self)],
            options=list(SERVER_OPTIONS),
            maximum_concurrent_rpcs=2 * self._most,
        )
        self._address = bind(server, self._address, self._credentials)
        server.start()
        self._watch.start()
        self._server = server
        self._set_health(serving=True)
        return self._address

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._address

    def drain(self, seconds: float) -> bool:
        """Refuse new calls, wait for those under way; whether all finished in time."""
        self._health.enter_graceful_shutdown()
        with self._changed:
            self._draining = True
        done = self.wait_until_idle(seconds)
        self._over.set()
        return done

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no call is under way; whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, seconds)

    def close(self) -> None:
        """Stop listening; calls under way are cut. Takes seconds at most."""
        self._over.set()
        self._watch.stop()
        if self._server is not None:
            self._server.stop(_CUT).wait(2 * _CUT)
            self._pool.shutdown()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- the methods: thin, and the same in all that can go wrong ----------------------------------

    def open(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._taken(context, self._calls, with_model=False) as tls:
            context.send_initial_metadata(((TLS, tls),))
            offer = _decoded(ServingOffer, self._only(requests, context))
            return codec.encode_serving(self._desk.open(offer))

    def predict(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._taken(context, self._calls):
            request = _decoded(PredictionRequest, self._only(requests, context))
            return codec.encode_serving(self._desk.predict(request))

    def predict_stream(
        self, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        try:
            with self._taken(context, self._streams):
                self._watch.expect(context)
                for data in requests:
                    self._watch.forget(context)  # it is our turn
                    reply = self._desk.predict(_decoded(PredictionRequest, data), self._over)
                    self._watch.expect(context)
                    yield codec.encode_serving(reply)
                    self._watch.expect(context)
                    if self._over.is_set():
                        raise _stopping()
        finally:
            self._watch.forget(context)

    def check_health(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """For anyone with a certificate of the authority, also while the service is stopping."""
        with self._refusals(context), self._probes.one():
            try:
                request = health_pb2.HealthCheckRequest.FromString(self._only(requests, context))
            except DecodeError:
                raise RequestRefused(
                    RefusalReason.MALFORMED, "the request is no question for health"
                ) from None
            answer: health_pb2.HealthCheckResponse = self._health.Check(request, context)
            return answer.SerializeToString()

    def _only(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """The one request of a call, for which the peer has as long as in a stream."""
        self._watch.expect(context)
        try:
            return next(requests)
        except StopIteration:
            raise RequestRefused(RefusalReason.MALFORMED, "the call brings no request") from None
        finally:
            self._watch.forget(context)

    @contextmanager
    def _taken(
        self, context: grpc.ServicerContext, slots: Slots, *, with_model: bool = True
    ) -> Iterator[str]:
        """A call that is the peer's and within the limits; gives its TLS version."""
        with self._refusals(context):
            tls = identify(context, self._peer_name) if self._with_tls else "none"
            with self._counted(), slots.one():
                if with_model:
                    self._desk.check_model(_metadata(context, MODEL))
                yield tls

    @contextmanager
    def _refusals(self, context: grpc.ServicerContext) -> Iterator[None]:
        """What goes wrong in a call, as the caller is told of it."""
        try:
            yield
        except Refusal as refusal:
            self._refuse(context, refusal.code, refusal.reason)
        except RequestRefused as refused:
            if refused.retry_after is not None:
                context.set_trailing_metadata(((RETRY_AFTER, f"{refused.retry_after:.3f}"),))
            self._refuse(context, CODES[refused.why], refused.reason)
        except grpc.RpcError:
            raise  # the peer has gone: there is nobody to tell
        except Exception as error:  # one bad call must not end the service
            log.exception("a bug in FLORIST:", exc_info=error)
            self._refuse(context, grpc.StatusCode.INTERNAL, "an internal error")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            if self._draining:
                raise _stopping()
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _refuse(
        self, context: grpc.ServicerContext, code: grpc.StatusCode, reason: str
    ) -> NoReturn:
        now = time.monotonic()
        if now - self._told.get(code, -_TELL_EVERY) >= _TELL_EVERY:
            self._told[code] = now
            log.warning("refused %s: %s", unquote(context.peer()), reason)
        context.abort(code, reason)

    def _set_health(self, *, serving: bool) -> None:
        states = health_pb2.HealthCheckResponse
        status = states.SERVING if serving else states.NOT_SERVING
        for service in ("", codec.PREDICTION_SERVICE):
            self._health.set(service, status)


class _Methods(grpc.GenericRpcHandler):
    """Routes the methods; the bytes go through as they are, to our own codec.

    A call with one request is taken as a stream of one, which is the same on the line: gRPC would
    wait for the request itself, before asking who calls, and for ever.
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


def _decoded(kind: type[R], data: bytes) -> R:
    try:
        return codec.decode_serving(kind, data)
    except ProtocolViolation as violation:
        raise RequestRefused(RefusalReason.MALFORMED, violation.reason) from None


def _metadata(context: grpc.ServicerContext, name: str) -> str:
    for key, value in context.invocation_metadata():
        if key == name:
            return str(value)
    return ""


def _stopping() -> RequestRefused:
    return RequestRefused(RefusalReason.STOPPING, "the service is being stopped")
