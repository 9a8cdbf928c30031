"""The services over real sockets and TLS, against peers that send anything at all.

Whatever comes: a clear refusal, bounded memory, and whoever behaves is served afterwards.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from florist.common.core.errors import FloristError, PeerLost, ProtocolViolation
from florist.common.session.session import Session, SessionTimeouts
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.grpc_prediction_client import PredictionConnection
from florist.common.transport.grpc_prediction_server import PredictionServer, ServerSettings
from florist.common.transport.messages import (
    MAX_MESSAGE_BYTES,
    BundleOffer,
    Control,
    Heartbeat,
    PredictionReply,
    PredictionRequest,
    ServingOffer,
    ServingTerms,
)
from florist.common.transport.refusal import RefusalReason, RequestRefused
from tests.fuzz import http2
from tests.fuzz.damage import damaged
from tests.fuzz.targets import HELLO, MESSAGES
from tests.support.certificates import ACTIVE, PASSIVE
from tests.support.links import PATIENCE, listening, open_channel
from tests.support.waiting import settled, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.transport.credentials import Credentials
    from florist.common.transport.grpc_listener import GrpcListener
    from tests.support.certificates import Trust

MIB = 1 << 20
SESSION = "0123456789abcdef" * 2
OFFER = ServingOffer(1, "test", "{}", BundleOffer(b"run", b"a", b"b"), b"")
FRAMES = {target.name: target.seeds for target in MESSAGES}

few = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@contextmanager
def grows_less_than(limit: int) -> Iterator[None]:
    """Bounds what this process holds more at the end, in MiB."""
    before = psutil.Process().memory_info().rss
    yield
    grown = (psutil.Process().memory_info().rss - before) / MIB
    assert grown < limit, f"{grown:.0f} MiB more"


# -- the listener of a run -------------------------------------------------------------------------


def a_good_peer_is_served(listener: GrpcListener, address: str, files: Credentials) -> None:
    with ThreadPoolExecutor(1) as other:
        dialing = other.submit(dial, address, files, ACTIVE, PATIENCE)
        accepted = listener.accept(PATIENCE)
        dialed = dialing.result(PATIENCE)
    dialed.channel("lane").send(Heartbeat(1))
    assert accepted.channel("lane").receive(Heartbeat, PATIENCE) == Heartbeat(1)
    dialed.close()
    accepted.close()


def named(channel: str) -> tuple[tuple[str, str], ...]:
    return (("florist-session", SESSION), ("florist-channel", channel))


def test_any_frames_end_in_a_clear_error_and_the_next_peer_is_served(
    active: Credentials, passive: Credentials
) -> None:
    with listening(active) as (listener, address), grows_less_than(150):

        @settings(few, max_examples=8)
        @given(st.lists(damaged(FRAMES["envelope"]) | st.binary(max_size=50), min_size=1))
        def holds(frames: list[bytes]) -> None:
            is_accepted, over = Event(), Event()

            def speak() -> Iterator[bytes]:
                # A link that fails before it is accepted is dropped, and nothing would follow.
                is_accepted.wait(PATIENCE)
                yield from frames
                over.wait(PATIENCE)

            with open_channel(address, passive, ACTIVE) as channel:
                method: grpc.StreamStreamMultiCallable[bytes, bytes]
                method = channel.stream_stream(codec.METHOD)
                calls = [method(speak(), metadata=named(CONTROL))]
                accepted = listener.accept(PATIENCE)
                is_accepted.set()
                calls.append(method(speak(), metadata=named("lane")))
                with (
                    pytest.raises(FloristError),
                    Session(accepted, HELLO, SessionTimeouts(silence=1.0)),
                ):
                    pass
                over.set()
                for call in calls:
                    call.cancel()

        holds()
        a_good_peer_is_served(listener, address, passive)


LIES = {
    "noise": b"\x16\x03\x01" + bytes(range(256)) * 8,
    "http/1": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
    "a preface, then noise": http2.PREFACE + bytes(range(256)) * 8,
    "a frame of 16 MiB": http2.PREFACE + http2.frame(http2.DATA, 0, 1, b"", 2**24 - 1),
    "headers of noise": http2.PREFACE
    + http2.frame(http2.SETTINGS, 0, 0, b"")
    + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff" * 200),
    "ten thousand settings": http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b"") * 10_000,
    "a window beyond all bounds": http2.PREFACE
    + http2.frame(http2.SETTINGS, 0, 0, b"")
    + http2.frame(http2.WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 3,
}


@pytest.mark.parametrize("lie", LIES)
def test_bytes_that_are_not_a_call_do_no_harm(
    lie: str, active: Credentials, passive: Credentials
) -> None:
    with listening(active) as (listener, address), grows_less_than(100):
        for _ in range(3):
            with http2.connected(address, passive, ACTIVE) as line, suppress(OSError):
                line.sendall(LIES[lie])
                http2.read_to_end(line, 1 << 16)
        a_good_peer_is_served(listener, address, passive)


@pytest.mark.parametrize("length", [MAX_MESSAGE_BYTES + 2**20, 2**31, 2**32 - 1])
def test_a_message_that_claims_to_be_huge_uses_no_memory(
    length: int, active: Credentials, passive: Credentials
) -> None:
    start = http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b"")
    start += http2.call(codec.METHOD, florist_session=SESSION, florist_channel=CONTROL)
    body = http2.message(b"x" * 100, length)
    with listening(active) as (listener, address), grows_less_than(100):
        with http2.connected(address, passive, ACTIVE) as line:
            line.sendall(start)
            accepted = listener.accept(PATIENCE)
            line.sendall(http2.frame(http2.DATA, 0, 1, body))
            with pytest.raises(PeerLost):
                accepted.channel(CONTROL).receive(Control, PATIENCE)
            accepted.close()
        a_good_peer_is_served(listener, address, passive)


def test_idle_connections_do_not_block_others(active: Credentials, passive: Credentials) -> None:
    """Some never begin to speak TLS, some stop in the middle of its first record."""
    with listening(active) as (listener, address), ExitStack() as lines, grows_less_than(100):
        host, _, port = address.rpartition(":")
        for number in range(200):
            line = lines.enter_context(socket.create_connection((host, int(port)), 5))
            line.sendall(b"\x16\x03\x01\x02\x00\x01"[: number % 7])
        a_good_peer_is_served(listener, address, passive)


def psutil_memory() -> int:
    return psutil.Process().memory_info().rss


def flood(address: str, files: Credentials, done: Event) -> None:
    """Open all channels that there can be, and send on each as much as is taken."""
    data = bytes(MAX_MESSAGE_BYTES)

    def messages() -> Iterator[bytes]:
        for _ in range(40):
            yield data
        done.wait(60)

    with open_channel(address, files, ACTIVE) as channel:
        method: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(codec.METHOD)
        calls = [method(messages(), metadata=named(CONTROL))]
        calls[0].initial_metadata()  # the session is open
        calls += [method(messages(), metadata=named(f"lane.{n}")) for n in range(40)]
        done.wait(60)
        for call in calls:
            call.cancel()


@pytest.mark.slow
def test_unused_channels_use_no_memory(active: Credentials, passive: Credentials) -> None:
    """5 GiB are offered. The flood comes from a process of its own, whose memory does not count."""
    spawn = multiprocessing.get_context("spawn")
    done = spawn.Event()
    with listening(active) as (listener, address):
        before = psutil.Process().memory_info().rss
        process = spawn.Process(target=flood, args=(address, passive, done))
        process.start()
        try:
            accepted = listener.accept(60)
            peak = settled(psutil_memory, quiet=4, tolerance=8 * MIB)
        finally:
            done.set()
        assert peak - before < 300 * MIB, f"{(peak - before) / MIB:.0f} MiB more"
        process.join(60)
        accepted.close()
        process.close()
        a_good_peer_is_served(listener, address, passive)


# -- the service of predictions --------------------------------------------------------------------


@dataclass
class PredictionHandler:
    """Answers with what came, if it is a model's."""

    def open(self, offer: ServingOffer) -> ServingTerms:
        if offer != OFFER:
            raise RequestRefused(RefusalReason.MISMATCH, "another model")
        return ServingTerms(offer, "model", 1000, 1000)

    def check_model(self, name: str) -> None:
        if name != "model":
            raise RequestRefused(RefusalReason.MISMATCH, "another model")

    def predict(
        self, request: PredictionRequest, cancelled: Event | None = None
    ) -> PredictionReply:
        del cancelled
        return PredictionReply(bytes(request.embeddings))


@contextmanager
def predictions(files: Credentials, idle: float = 1.0) -> Iterator[PredictionServer]:
    settings = ServerSettings(calls=4, streams=2, idle=idle)
    with PredictionServer("127.0.0.1:0", files, PASSIVE, PredictionHandler(), settings) as server:
        yield server


def a_good_client_is_served(server: PredictionServer, files: Credentials) -> None:
    line, _ = PredictionConnection.dial(server.address, files, ACTIVE, OFFER, timeout=20, answer=10)
    with line:
        assert line.predict(PredictionRequest(b"rows")).probabilities == b"rows"
        assert len(list(line.stream([PredictionRequest(b"rows")] * 3))) == 3
        assert line.is_ready(10)


#: How a call with bad bytes may end: never in UNKNOWN or INTERNAL, which would be bugs.
CLEAR = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
HEALTH = "/grpc.health.v1.Health/Check"


def outcome(channel: grpc.Channel, method: str, bodies: Iterable[bytes]) -> grpc.StatusCode:
    call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method)
    under_way = call(iter(bodies), metadata=(("florist-model", "model"),), timeout=20)
    with suppress(grpc.RpcError):
        for _ in under_way:
            pass
    return under_way.code()


@pytest.mark.parametrize("method", [codec.OPEN, codec.PREDICT, codec.PREDICT_STREAM, HEALTH])
def test_any_requests_are_answered_or_refused(
    method: str, active: Credentials, passive: Credentials
) -> None:
    seeds = [codec.encode_serving(OFFER), codec.encode_serving(PredictionRequest(b"rows", 3))]
    with predictions(active) as server, grows_less_than(150):
        with open_channel(server.address, passive, ACTIVE) as channel:

            @few
            @given(st.lists(damaged(seeds) | st.binary(max_size=50), max_size=3))
            def holds(bodies: list[bytes]) -> None:
                assert outcome(channel, method, bodies) in CLEAR

            holds()
            huge = bytes(MAX_MESSAGE_BYTES + 100)
            assert outcome(channel, method, [huge]) in CLEAR
        a_good_client_is_served(server, passive)


@pytest.mark.parametrize("method", [codec.OPEN, codec.PREDICT, codec.PREDICT_STREAM, HEALTH])
@pytest.mark.parametrize("who", ["the peer", "another"])
def test_calls_without_a_request_do_not_block_others(
    method: str, who: str, active: Credentials, passive: Credentials, trust: Trust
) -> None:
    """Who is not the peer is refused at once; who is loses its turn after a while."""
    files = passive if who == "the peer" else trust.party("another")
    stop = Event()

    def nothing() -> Iterator[bytes]:
        stop.wait(60)
        yield from ()

    with (
        predictions(active, idle=0.5) as server,
        open_channel(server.address, files, ACTIVE) as channel,
        grows_less_than(100),
    ):
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method)
        silent = [call(nothing(), metadata=(("florist-model", "model"),)) for _ in range(60)]
        if who == "another" and method != HEALTH:
            a_good_client_is_served(server, passive)
        wait_until(
            lambda: not any(each.is_active() for each in silent),
            within=10,
            message=lambda: "a silent call was not cancelled",
        )
        a_good_client_is_served(server, passive)
        stop.set()


# -- a service that lies to its client -------------------------------------------------------------


@contextmanager
def lying(terms: ServingTerms, answers: int, files: Credentials) -> Iterator[str]:
    """Gives these terms, and to three requests as many answers."""

    def stream(requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        deque(islice(requests, 3), maxlen=0)
        yield from [codec.encode_serving(PredictionReply(b"x"))] * answers

    def opened(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.send_initial_metadata((("florist-tls", "TLSv1.3"),))
        return codec.encode_serving(terms)

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Open": grpc.unary_unary_rpc_method_handler(opened),
        "PredictStream": grpc.stream_stream_rpc_method_handler(stream),
    }
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("florist.Prediction", handlers)]
        )
        port = server.add_secure_port("127.0.0.1:0", files.for_listener(lambda: None))
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait(10)


@pytest.mark.parametrize(
    ("model", "max_rows"), [("", 5), ("no\nname", 5), ("é", 5), ("x" * 999, 5), ("model", 0)]
)
def test_invalid_terms_are_refused(
    model: str, max_rows: int, active: Credentials, passive: Credentials
) -> None:
    terms = ServingTerms(OFFER, model, max_rows, 10)
    with (
        lying(terms, 0, active) as address,
        pytest.raises(ProtocolViolation, match="contain no valid model name, or allow no rows"),
    ):
        PredictionConnection.dial(address, passive, ACTIVE, OFFER, timeout=20, answer=5)


@pytest.mark.parametrize(
    ("answers", "says"), [(2, "fewer replies"), (0, "fewer replies"), (4, "more replies")]
)
def test_as_many_answers_as_requests(
    answers: int, says: str, active: Credentials, passive: Credentials
) -> None:
    with lying(ServingTerms(OFFER, "model", 5, 10), answers, active) as address:
        line, _ = PredictionConnection.dial(address, passive, ACTIVE, OFFER, timeout=20, answer=5)
        with line, pytest.raises(ProtocolViolation, match=says):
            list(line.stream([PredictionRequest(b"rows")] * 3))
