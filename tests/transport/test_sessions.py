"""How parties connect over the network, and how a listener handles bad callers."""

from __future__ import annotations

import logging
import queue
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest

from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    Interrupted,
    PeerLost,
    ProtocolViolation,
    TransportError,
)
from florist.common.transport import codec
from florist.common.transport.channel import CONTROL
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.grpc_listener import GrpcListener
from florist.common.transport.messages import (
    MAX_MESSAGE_BYTES,
    Abort,
    Control,
    Goodbye,
    Heartbeat,
    SetChunk,
    Step,
)
from florist.common.transport.peer_unavailable import PeerUnavailable
from tests.support.certificates import ACTIVE, PASSIVE
from tests.support.links import PATIENCE, free_address, grpc_links, listening
from tests.support.waiting import settled, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.transport.channel import Link
    from florist.common.transport.credentials import Credentials

SESSION = "0123456789abcdef" * 2
MEGABYTE = 1 << 20


# -- meeting ---------------------------------------------------------------------------------------


def test_the_dialing_party_may_start_first(active: Credentials, passive: Credentials) -> None:
    meeting_point = free_address()
    reasons: list[str] = []
    with ThreadPoolExecutor(1) as other:
        dialing = other.submit(
            dial, meeting_point, passive, ACTIVE, PATIENCE, on_wait=reasons.append
        )
        wait_until(lambda: bool(reasons), PATIENCE)
        with listening(active, meeting_point) as (listener, address):
            assert address == meeting_point
            accepted = listener.accept(PATIENCE)
            dialed = dialing.result(PATIENCE)
            accepted.channel("lane").send(Heartbeat(1))
            assert dialed.channel("lane").receive(Heartbeat, PATIENCE) == Heartbeat(1)
            dialed.close()
            accepted.close()
    assert reasons == [f"nothing listens on {meeting_point}"]


def test_a_peer_that_never_connects() -> None:
    address = free_address()
    reasons: list[str] = []
    start = time.monotonic()
    with listening(address=address) as (listener, _):
        expected = f"{PASSIVE} did not connect to {address} within 0.3 s"
        with pytest.raises(TransportError, match=expected):
            listener.accept(0.3, on_wait=reasons.append)
    with pytest.raises(PeerUnavailable, match=rf"{ACTIVE} could not .* 0\.5 s: nothing listens"):
        dial(address, None, ACTIVE, 0.5, on_wait=reasons.append)
    assert time.monotonic() - start < 4
    assert reasons == [f"nothing listens on {address}"]


def test_waiting_is_reported() -> None:
    reasons: list[str] = []
    with listening() as (listener, address), pytest.raises(TransportError):
        listener.accept(1.2, on_wait=reasons.append)
    assert reasons == [f"{PASSIVE} has not connected to {address} yet"]


@pytest.mark.parametrize("address", ["nonsense", "host:99999999"])
def test_an_invalid_address(address: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        dial(address, None, ACTIVE, 1)
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        GrpcListener(address, None, PASSIVE).start()


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(PeerUnavailable, match="cannot be resolved"):
        dial("no-such-host.invalid:7000", None, ACTIVE, 0.3)


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(PeerUnavailable, match="does not answer"):
            dial(address, None, ACTIVE, 0.5)
    assert time.monotonic() - start < 3


def test_a_port_in_use() -> None:
    with (
        listening() as (_, address),
        pytest.raises(ConfigurationError, match=f"cannot listen on {address}: Address already"),
    ):
        GrpcListener(address, None, PASSIVE).start()


def test_an_address_of_another_machine() -> None:
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1:7000: Cannot assign"):
        GrpcListener("192.0.2.1:7000", None, PASSIVE).start()


def test_a_second_session_waits_until_the_first_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with listening() as (listener, address):
        first = dial(address, None, ACTIVE, PATIENCE)
        accepted = listener.accept(PATIENCE)
        reasons: list[str] = []
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(PeerUnavailable, match="another session"),
        ):
            dial(address, None, ACTIVE, 0.5, on_wait=reasons.append)
        assert reasons == [f"{ACTIVE} is busy: another session is active"]
        assert "another session is active" in caplog.text
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(dial, address, None, ACTIVE, PATIENCE)
            first.close()
            accepted.close()
            second = waiting.result(PATIENCE)
        again = listener.accept(PATIENCE)
        again.channel("lane").send(Heartbeat(2))
        assert second.channel("lane").receive(Heartbeat, PATIENCE) == Heartbeat(2)
        again.close()
        second.close()


def test_a_failed_link_makes_room_even_if_it_is_not_closed() -> None:
    with listening() as (listener, address):
        first = dial(address, None, ACTIVE, PATIENCE)
        listener.accept(PATIENCE).fail(Interrupted("enough"))
        second = dial(address, None, ACTIVE, PATIENCE)
        listener.accept(PATIENCE).close()
        first.close()
        second.close()


def test_a_peer_that_disconnects_before_accept_is_skipped() -> None:
    with listening() as (listener, address):
        dial(address, None, ACTIVE, PATIENCE).close()
        with ThreadPoolExecutor(1) as other:
            accepting = other.submit(listener.accept, PATIENCE)
            dialed = dial(address, None, ACTIVE, PATIENCE)
            accepted = accepting.result(PATIENCE)
        dialed.channel("lane").send(Heartbeat(1))
        assert accepted.channel("lane").receive(Heartbeat, PATIENCE) == Heartbeat(1)
        accepted.close()
        dialed.close()


def test_closing_the_listener_closes_its_link() -> None:
    with listening() as (listener, address):
        dialed = dial(address, None, ACTIVE, PATIENCE)
        listener.accept(PATIENCE)
    with pytest.raises(ProtocolViolation, match="closed"):
        dialed.channel(CONTROL).receive(Goodbye, PATIENCE)
    dialed.close()


def test_a_process_with_open_links_can_exit() -> None:
    """Nothing of gRPC's or ours holds up the interpreter's end."""
    code = """
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.grpc_listener import GrpcListener
listener = GrpcListener("127.0.0.1:0", None, "a")
dialed = dial(listener.start(), None, "b", 10)
accepted = listener.accept(10)
dialed.channel("lane"); accepted.channel("lane")
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "done\n"


# -- memory ----------------------------------------------------------------------------------------


def test_memory_stays_bounded_when_the_peer_does_not_read(
    active: Credentials, passive: Credentials
) -> None:
    """Endless messages of 1 MiB, both ways, on two channels."""
    with grpc_links(active, passive) as (left, right):
        before = psutil.Process().memory_info().rss
        chunk = SetChunk(Step.SECOND_ROUND, 0, b"x" * MEGABYTE)
        sent: list[int] = []

        def flood(link: Link, name: str) -> None:
            channel = link.channel(name)
            with suppress(FloristError):
                while True:
                    channel.send(chunk)
                    sent.append(1)

        floods = [
            threading.Thread(target=flood, args=(link, name))
            for name in ("one", "two")
            for link in (left, right)
        ]
        for thread in floods:
            thread.start()
        assert settled(lambda: len(sent), quiet=1.0) < 4 * 32
        assert psutil.Process().memory_info().rss - before < 256 * MEGABYTE
        left.fail(Interrupted("enough"))
        right.fail(Interrupted("enough"))
        for thread in floods:
            thread.join(PATIENCE)


# -- a caller that is not a FLORIST party ----------------------------------------------------------


class RawStream:
    """A stream as someone else's program might use it."""

    def __init__(self, channel: grpc.Channel, metadata: dict[str, str]) -> None:
        self._outgoing: queue.Queue[bytes | None] = queue.Queue()
        method: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(codec.METHOD)
        self.call = method(
            iter(self._outgoing.get, None), metadata=tuple(metadata.items()), timeout=PATIENCE
        )

    def send(self, data: bytes) -> None:
        self._outgoing.put(data)

    def end(self) -> None:
        self._outgoing.put(None)

    def refusal(self) -> tuple[grpc.StatusCode, str]:
        """How the listener ended it."""
        with pytest.raises(grpc.RpcError) as caught:
            list(self.call)
        self.end()
        return caught.value.code(), caught.value.details() or ""


@contextmanager
def raw_caller(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def named(channel: str, session: str = SESSION) -> dict[str, str]:
    return {"florist-session": session, "florist-channel": channel}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"florist-session": SESSION},
        {"florist-channel": CONTROL},
        named("UPPER CASE"),
        named(""),
        named("x" * 65),
        named("../etc"),
        named(CONTROL, session="short"),
        named(CONTROL, session="Z" * 32),
    ],
)
def test_calls_without_proper_names_are_refused(metadata: dict[str, str]) -> None:
    with listening() as (_, address), raw_caller(address) as channel:
        code, details = RawStream(channel, metadata).refusal()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details == "the call does not name a session and a channel"


def test_a_channel_without_a_session_is_refused() -> None:
    with listening() as (listener, address), raw_caller(address) as channel:
        assert RawStream(channel, named("lane")).refusal() == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "unknown session",
        )
        control = RawStream(channel, named(CONTROL))
        accepted = listener.accept(PATIENCE)
        assert RawStream(channel, named("lane", "f" * 32)).refusal() == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "unknown session",
        )
        control.end()
        accepted.close()


def test_a_channel_twice_and_too_many_channels_are_refused() -> None:
    with listening() as (listener, address), raw_caller(address) as channel:
        control = RawStream(channel, named(CONTROL))
        accepted = listener.accept(PATIENCE)
        lanes = [RawStream(channel, named(f"lane.{n}")) for n in range(31)]
        accepted.channel("lane.30", PATIENCE)
        assert RawStream(channel, named("lane.30")).refusal() == (
            grpc.StatusCode.ALREADY_EXISTS,
            "channel lane.30 is already open",
        )
        for n in range(31):
            if n != 30:
                accepted.channel(f"lane.{n}", PATIENCE)
        assert RawStream(channel, named("lane.31")).refusal() == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "too many channels",
        )
        accepted.close()
        for stream in (control, *lanes):
            stream.end()


def test_an_unknown_method_is_refused() -> None:
    with listening() as (_, address), raw_caller(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/other.Service/Go")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xff\xff", "malformed message"),
        (b"x" * (MAX_MESSAGE_BYTES + 1), "limit is 4 MiB"),
        (b"\xfa\x07\x00", "empty or unknown message"),
    ],
)
def test_malformed_messages_are_a_violation(data: bytes, says: str) -> None:
    with listening() as (listener, address), raw_caller(address) as channel:
        control = RawStream(channel, named(CONTROL))
        control.send(data)
        control.send(codec.encode(Heartbeat(1)))
        accepted = listener.accept(PATIENCE)
        received = accepted.channel(CONTROL)
        with pytest.raises(ProtocolViolation, match=says):
            received.receive(Control, PATIENCE)
        assert received.receive(Heartbeat, PATIENCE) == Heartbeat(1)
        control.end()
        accepted.close()


def test_a_message_far_above_the_limit_ends_the_connection() -> None:
    with listening() as (listener, address), raw_caller(address) as channel:
        control = RawStream(channel, named(CONTROL))
        accepted = listener.accept(PATIENCE)
        control.send(b"x" * (3 * MAX_MESSAGE_BYTES))
        with pytest.raises(PeerLost, match=r"was lost|ended the connection"):
            accepted.channel(CONTROL).receive(Control, PATIENCE)
        code, details = control.refusal()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details


def test_a_message_on_a_closed_channel_is_a_violation() -> None:
    with listening() as (listener, address), raw_caller(address) as channel:
        control = RawStream(channel, named(CONTROL))
        accepted = listener.accept(PATIENCE)  # first: one that has failed before is passed over
        control.send(b"")
        control.send(codec.encode(Heartbeat(1)))
        wait_until(lambda: accepted.failure is not None, PATIENCE)
        assert isinstance(accepted.failure, ProtocolViolation)
        control.end()


def test_a_stream_that_stops_without_an_end_is_a_lost_connection() -> None:
    with listening() as (listener, address), raw_caller(address) as channel:
        control = RawStream(channel, named(CONTROL))
        control.send(codec.encode(Abort("last words")))
        received = listener.accept(PATIENCE).channel(CONTROL)
        assert received.receive(Abort, PATIENCE) == Abort("last words")
        control.end()
        with pytest.raises(PeerLost, match="ended the connection unexpectedly"):
            received.receive(Control)


# -- a listener that is not a FLORIST party --------------------------------------------------------


@contextmanager
def raw_listener(
    answer: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
) -> Iterator[str]:
    service, method = codec.METHOD.strip("/").split("/")
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(answer)
    handlers = [grpc.method_handlers_generic_handler(service, {method: handler})]
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, handlers=handlers)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait(PATIENCE)


def test_a_refusal_shows_the_reason_without_control_characters() -> None:
    def refuse(_: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not\x1b[31m today\nreally" + "x" * 9999)

    with raw_listener(refuse) as address, pytest.raises(TransportError) as caught:
        dial(address, None, ACTIVE, PATIENCE)
    assert "refused this party: not [31m today really" in caught.value.reason
    assert caught.value.reason.isprintable()
    assert len(caught.value.reason) < 500


def test_waiting_for_a_listener_that_does_not_answer_ends() -> None:
    def ignore(requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        list(requests)
        yield from ()

    with (
        raw_listener(ignore) as address,
        pytest.raises(PeerUnavailable, match="accepts connections but does not answer"),
    ):
        dial(address, None, ACTIVE, 1)


def test_too_large_a_message_from_the_listener_is_a_violation() -> None:
    def shout(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.send_initial_metadata((("florist-tls", "none"),))
        yield b"x" * (3 * MAX_MESSAGE_BYTES)
        list(requests)

    with raw_listener(shout) as address:
        link = dial(address, None, ACTIVE, PATIENCE)
        with pytest.raises(ProtocolViolation, match="exceeded the size limit"):
            link.channel(CONTROL).receive(Control, PATIENCE)
        link.close()
