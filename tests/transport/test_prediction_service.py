"""The prediction service over real sockets and TLS: admission, refusals and shutdown."""

from __future__ import annotations

import multiprocessing
import os
import signal
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2

from florist.common.core.errors import ConfigurationError, PeerFailed, PeerLost, TransportError
from florist.common.transport import codec
from florist.common.transport.grpc_prediction_client import (
    PeerBusy,
    PredictionConnection,
    ServingRefused,
)
from florist.common.transport.grpc_prediction_server import PredictionServer, ServerSettings
from florist.common.transport.messages import (
    BundleOffer,
    PredictionReply,
    PredictionRequest,
    ServingOffer,
    ServingTerms,
)
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.refusal import RefusalReason, RequestRefused
from tests.support.certificates import ACTIVE, PASSIVE, Trust
from tests.support.links import listening, open_channel
from tests.support.waiting import wait_until
from tests.transport.test_tls import call_by_hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.transport.credentials import Credentials

OFFER = ServingOffer(1, "test", "{}", BundleOffer(b"run", b"a", b"b"), b"")
#: Seconds in which a lost or idle peer must be noticed.
NOTICED = 12.0


@dataclass
class EchoHandler:
    """Answers with what came; can be held up."""

    may_answer: Event = field(default_factory=Event)
    asked: int = 0

    def __post_init__(self) -> None:
        self.may_answer.set()

    def open(self, offer: ServingOffer) -> ServingTerms:
        if offer.release == "other":
            raise RequestRefused(RefusalReason.MISMATCH, "another model")
        return ServingTerms(offer, "model", 1000, 1000)

    def check_model(self, name: str) -> None:
        if name != "model":
            raise RequestRefused(RefusalReason.MISMATCH, "another model")

    def predict(
        self, request: PredictionRequest, cancelled: Event | None = None
    ) -> PredictionReply:
        del cancelled
        self.asked += 1
        assert self.may_answer.wait(30)
        if request.embeddings == b"bug":
            raise ZeroDivisionError
        return PredictionReply(bytes(request.embeddings))


@contextmanager
def serving(
    credentials: Credentials | None,
    handler: EchoHandler | None = None,
    *,
    calls: int = 8,
    streams: int = 2,
    idle: float = 30.0,
    address: str = "127.0.0.1:0",
) -> Iterator[PredictionServer]:
    server = PredictionServer(
        address,
        credentials,
        PASSIVE,
        handler or EchoHandler(),
        ServerSettings(calls, streams, idle),
    )
    with server:
        yield server


@contextmanager
def connection_to(
    server: PredictionServer, credentials: Credentials | None, *, answer: float = 20.0
) -> Iterator[PredictionConnection]:
    connection, _ = PredictionConnection.dial(
        server.address, credentials, ACTIVE, OFFER, timeout=20, answer=answer
    )
    with connection:
        yield connection


def request(text: bytes = b"rows") -> PredictionRequest:
    return PredictionRequest(text)


@pytest.mark.parametrize("kind", ["TLS", "plain"])
def test_calls_and_streams_are_answered(
    active: Credentials, passive: Credentials, kind: str
) -> None:
    files = (active, passive) if kind == "TLS" else (None, None)
    with serving(files[0]) as server, connection_to(server, files[1]) as connection:
        assert connection.predict(request()).probabilities == b"rows"
        asked = [b"%d" % number for number in range(50)]
        answers = connection.stream(map(PredictionRequest, asked))
        assert [answer.probabilities for answer in answers] == asked
        assert connection.is_ready(10)


# --- who is let in ---


def test_a_peer_may_restart_with_a_new_certificate(
    active: Credentials, passive: Credentials, trust: Trust
) -> None:
    with serving(active) as server, connection_to(server, passive) as connection:
        assert connection.predict(request()).probabilities == b"rows"
        server.close()
        renewed = trust.with_common_names(ACTIVE, listed=ACTIVE)
        with serving(renewed, address=server.address):
            wait_until(lambda: connection.is_ready(1), within=15)
            assert connection.predict(request()).probabilities == b"rows"


def test_a_server_of_another_party_gets_no_request(
    active: Credentials, passive: Credentials, trust: Trust
) -> None:
    """Its certificate lists the peer's name, but its common name is another."""
    with serving(active) as server, connection_to(server, passive) as connection:
        server.close()
        thief = EchoHandler()
        with serving(trust.party("mallory", ACTIVE), thief, address=server.address):
            for _ in range(3):
                assert not connection.is_ready(1)
                with pytest.raises(TransportError):
                    connection.predict(request())
            assert thief.asked == 0


def test_only_the_peer_is_admitted(active: Credentials, trust: Trust, stranger: Trust) -> None:
    with serving(active) as server:
        with pytest.raises(TransportError, match="not to the configured peer"):
            PredictionConnection.dial(
                server.address, trust.party("somebody"), ACTIVE, OFFER, timeout=10, answer=5
            )
        files = stranger.party(PASSIVE, authority=trust)
        with pytest.raises(TransportError, match="probably refused"):
            PredictionConnection.dial(server.address, files, ACTIVE, OFFER, timeout=10, answer=5)
        with pytest.raises(TransportError, match="expects TLS"):
            PredictionConnection.dial(server.address, None, ACTIVE, OFFER, timeout=10, answer=5)


def test_another_certificate_of_the_authority_may_only_check_health(
    active: Credentials, trust: Trust
) -> None:
    with serving(active) as server:
        channel = open_channel(server.address, trust.party(ACTIVE, "probe"), ACTIVE)
        with channel:
            assert health(channel, "") == "SERVING"
            assert health(channel, "florist.Prediction") == "SERVING"
            predict: grpc.UnaryUnaryMultiCallable[bytes, bytes]
            predict = channel.unary_unary(codec.PREDICT)
            with pytest.raises(grpc.RpcError) as refused:
                predict(b"", timeout=10)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_health_check_over_tls_1_2_is_refused(active: Credentials, trust: Trust) -> None:
    context = trust.party("mallory").context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(active) as server:
        answer = call_by_hand(server.address, context, "/grpc.health.v1.Health/Check")
    assert b"uses TLSv1.2; TLS 1.3 is required" in answer


def health(channel: grpc.Channel, service: str) -> str:
    check: grpc.UnaryUnaryMultiCallable[
        health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    ] = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    answer = check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def test_another_server_or_none(active: Credentials, passive: Credentials) -> None:
    refused = pytest.raises(TransportError, match=r"does not serve predictions; .*--stage serve")
    with listening(active) as (_, address), refused:
        PredictionConnection.dial(address, passive, ACTIVE, OFFER, timeout=10, answer=5)
    with pytest.raises(PeerUnavailable, match="nothing listens"):
        PredictionConnection.dial("127.0.0.1:1", passive, ACTIVE, OFFER, timeout=0.5, answer=5)


def test_an_address_in_use(active: Credentials) -> None:
    with serving(active) as server:
        other = PredictionServer(
            server.address, active, PASSIVE, EchoHandler(), ServerSettings(1, 1, 1)
        )
        with pytest.raises(ConfigurationError, match=r"cannot listen on .*in use"), other:
            pass


# --- what is refused ---


def test_a_mismatch_is_refused_and_the_service_stays(
    active: Credentials, passive: Credentials
) -> None:
    with serving(active) as server:
        other = ServingOffer(1, "other", "{}", OFFER.bundle, b"")
        with pytest.raises(ServingRefused, match="another model"):
            PredictionConnection.dial(server.address, passive, ACTIVE, other, timeout=10, answer=5)
        with connection_to(server, passive) as connection:
            assert connection.predict(request()).probabilities == b"rows"


def test_a_bug_in_one_call_does_not_affect_others(
    active: Credentials, passive: Credentials
) -> None:
    with serving(active) as server, connection_to(server, passive) as connection:
        with pytest.raises(PeerFailed, match="an internal error"):
            connection.predict(request(b"bug"))
        with pytest.raises(PeerFailed, match="an internal error"):
            list(connection.stream([request(), request(b"bug")]))
        assert connection.predict(request()).probabilities == b"rows"


def test_more_calls_than_allowed_are_refused_and_the_others_answered(
    active: Credentials, passive: Credentials
) -> None:
    handler = EchoHandler()
    with serving(active, handler, calls=3) as server, connection_to(server, passive) as connection:
        handler.may_answer.clear()
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(connection.predict, request()) for _ in range(3)]
            wait_until(lambda: handler.asked == 3, NOTICED)
            for _ in range(5):
                with pytest.raises(PeerBusy, match="the limit is 3 concurrent requests") as busy:
                    connection.predict(request())
                assert busy.value.retry_after == 1.0
            handler.may_answer.set()
            assert [w.result(20).probabilities for w in waiting] == [b"rows"] * 3
        assert connection.predict(request()).probabilities == b"rows"


def test_an_answer_that_is_late(active: Credentials, passive: Credentials) -> None:
    handler = EchoHandler()
    with (
        serving(active, handler) as server,
        connection_to(server, passive, answer=0.3) as connection,
    ):
        handler.may_answer.clear()
        with pytest.raises(PeerLost, match="no answer in time"):
            connection.predict(request())
        handler.may_answer.set()
        assert connection.predict(request()).probabilities == b"rows"


def test_errors_of_the_request_iterator_are_raised(
    active: Credentials, passive: Credentials
) -> None:
    def rows() -> Iterator[PredictionRequest]:
        yield request()
        raise ConfigurationError("the file is damaged")

    with serving(active) as server, connection_to(server, passive) as connection:
        with pytest.raises(ConfigurationError, match="the file is damaged"):
            list(connection.stream(rows()))
        assert server.wait_until_idle(10)


# --- peers that stand still, or vanish ---


def test_a_stream_without_requests_is_cancelled(active: Credentials, passive: Credentials) -> None:
    with (
        serving(active, streams=1, idle=0.5) as server,
        connection_to(server, passive) as connection,
    ):
        stop = Event()

        def silent() -> Iterator[PredictionRequest]:
            yield request()
            stop.wait(30)

        answers = connection.stream(silent())
        assert next(answers).probabilities == b"rows"
        with pytest.raises(PeerLost):
            next(answers)
        stop.set()
        assert server.wait_until_idle(NOTICED)
        assert len(list(connection.stream([request()]))) == 1, "its place is free again"


def test_a_stream_that_is_not_read_is_cancelled(active: Credentials, passive: Credentials) -> None:
    """Answers pile up until the connection is full; the service does not wait for ever."""
    with (
        serving(active, streams=1, idle=1.0) as server,
        connection_to(server, passive) as connection,
    ):
        large = bytes(1 << 20)
        answers = connection.stream(request(large) for _ in range(200))
        assert len(next(answers).probabilities) == 1 << 20
        assert server.wait_until_idle(NOTICED), "a stream that nobody reads is ended"
        with pytest.raises(PeerLost):
            list(answers)
        assert connection.predict(request()).probabilities == b"rows"


def vanish(address: str, credentials: Credentials) -> None:
    """A peer that is killed in the middle of a stream."""
    connection, _ = PredictionConnection.dial(
        address, credentials, ACTIVE, OFFER, timeout=20, answer=20
    )
    answers = connection.stream(request() for _ in iter(int, 1))
    next(answers)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_peer_that_vanishes_frees_its_slot(active: Credentials, passive: Credentials) -> None:
    spawn = multiprocessing.get_context("spawn")
    handler = EchoHandler()
    with serving(active, handler, streams=1) as server:
        process = spawn.Process(target=vanish, args=(server.address, passive))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        process.close()
        assert handler.asked > 0
        assert server.wait_until_idle(NOTICED)
        with connection_to(server, passive) as connection:
            assert len(list(connection.stream([request()]))) == 1


# --- how it stops ---


def test_draining_lets_calls_finish_and_refuses_new_ones(
    active: Credentials, passive: Credentials
) -> None:
    handler = EchoHandler()
    with serving(active, handler) as server, connection_to(server, passive) as connection:
        handler.may_answer.clear()
        with ThreadPoolExecutor(3) as pool:
            call = pool.submit(connection.predict, request())
            stream = pool.submit(list, connection.stream([request(), request()]))
            wait_until(lambda: handler.asked == 2, NOTICED)
            drained = pool.submit(server.drain, 20.0)
            wait_until(lambda: not connection.is_ready(5), NOTICED)
            with pytest.raises(PeerLost, match="the service is being stopped"):
                connection.predict(request())
            assert not drained.done()
            handler.may_answer.set()
            assert call.result(20).probabilities == b"rows"
            assert len(stream.result(20)) == 2
            assert drained.result(20) is True


def test_draining_ends_in_time(active: Credentials, passive: Credentials) -> None:
    with serving(active) as server, connection_to(server, passive) as connection:
        answers = connection.stream(request() for _ in iter(int, 1))  # without end
        next(answers)
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            drained = pool.submit(server.drain, 0.5)
            with pytest.raises(PeerLost, match="the service is being stopped"):
                for _ in answers:
                    pass
            assert drained.result(10) is False
        assert time.monotonic() - start < 5


def test_a_client_reconnects_to_a_restarted_service(
    active: Credentials, passive: Credentials
) -> None:
    with serving(active) as server:
        address = server.address
        connection, _ = PredictionConnection.dial(
            address, passive, ACTIVE, OFFER, timeout=20, answer=20
        )
    with connection:
        with pytest.raises(PeerLost):
            connection.predict(request())
        again = PredictionServer(
            address, active, PASSIVE, EchoHandler(), ServerSettings(8, 2, 30.0)
        )
        with again:
            deadline = time.monotonic() + NOTICED
            while not connection.is_ready(1):
                assert time.monotonic() < deadline
            assert connection.predict(request()).probabilities == b"rows"
