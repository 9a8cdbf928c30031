"""Other callers can neither use up the peer's limits, nor fill the log, nor end a run."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import grpc
import pytest

from florist.common.core.process_limits import CIPHERS
from florist.common.settings.loader import load_config
from florist.common.transport import codec, grpc_server, reserved_connections
from florist.common.transport.credentials import Credentials
from florist.common.transport.grpc_dialer import dial, pinned_channel
from florist.common.transport.messages import Heartbeat
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.tls_probe import probe
from tests.support.certificates import ACTIVE, Trust
from tests.support.links import PATIENCE, listening, open_channel
from tests.support.parties import SlowIds, Workspace
from tests.support.waiting import wait_until
from tests.transport.test_prediction_service import connection_to, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Open files that a party may have in these tests.
FEW_FILES = 1024


@contextmanager
def flood(address: str, stranger: Credentials) -> Iterator[None]:
    """Many concurrent calls, made again as soon as they are refused."""
    stop = Event()

    def call_in_a_loop(channel: grpc.Channel) -> None:
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(codec.METHOD)
        metadata = (("florist-session", "0" * 32), ("florist-channel", "control"))
        while not stop.is_set():
            for each in [call(iter(()), metadata=metadata, timeout=5) for _ in range(40)]:
                with suppress(grpc.RpcError):
                    list(each)

    with ExitStack() as stack:
        channels = [stack.enter_context(open_channel(address, stranger, ACTIVE)) for _ in range(4)]
        threads = [Thread(target=call_in_a_loop, args=(each,)) for each in channels]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)


def test_a_flood_of_refused_calls_does_not_disturb_a_session(
    trust: Trust,
    active: Credentials,
    passive: Credentials,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit on all calls would refuse those of the peer too, and end its session."""

    def identify_slowly(*arguments: object) -> str:
        try:
            return identify(*arguments)  # type: ignore[arg-type]
        except grpc_server.CallerRejected:
            time.sleep(0.2)  # a busy machine
            raise

    identify = grpc_server.identify
    monkeypatch.setattr(grpc_server, "identify", identify_slowly)
    with (
        caplog.at_level(logging.WARNING),
        listening(active) as (listener, address),
        flood(address, trust.party("mallory")),
    ):
        dialed = dial(address, passive, ACTIVE, PATIENCE)
        accepted = listener.accept(PATIENCE)
        for number in range(8):
            sending = accepted.channel(f"lane-{number}")
            receiving = dialed.channel(f"lane-{number}")
            sending.send(Heartbeat(number))
            assert receiving.receive(Heartbeat, PATIENCE) == Heartbeat(number)
            time.sleep(0.02)
        accepted.close()
        dialed.close()
    refused = [line for line in caplog.messages if line.startswith("refused ")]
    assert len([line for line in refused if "'mallory'" in line]) == 1


def test_stalled_health_checks_of_others_leave_slots_for_the_peer(
    trust: Trust, active: Credentials, passive: Credentials
) -> None:
    with (
        serving(active) as server,
        connection_to(server, passive) as connection,
        open_channel(server.address, trust.party("mallory"), ACTIVE) as channel,
    ):
        check: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
            "/grpc.health.v1.Health/Check"
        )
        stop = Event()

        def stalled() -> Iterator[bytes]:
            stop.wait(PATIENCE)
            yield b""

        held = [check.future(stalled()) for _ in range(8)]
        wait_until(lambda: sum(each.done() for each in held) == 6, within=10)
        assert connection.is_ready(5)
        stop.set()


def test_silent_connections_are_limited_and_dropped_in_time(
    active: Credentials, passive: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "HANDSHAKE", 2.0)
    monkeypatch.setattr(grpc_server, "_MAX_CONNECTIONS", 20)
    with listening(active) as (listener, address), ExitStack() as stack:
        silent = [stack.enter_context(connect(address)) for _ in range(60)]
        # Those above the limit are closed at once, the others when their time is over.
        wait_until(lambda: sum(map(is_closed, silent)) >= 40, within=1.5)
        assert not all(map(is_closed, silent))
        dialed = dial(address, passive, ACTIVE, PATIENCE)
        accepted = listener.accept(PATIENCE)
        wait_until(lambda: all(map(is_closed, silent)), within=5)
        accepted.close()
        dialed.close()


def test_another_certificate_cannot_hold_all_connections(
    trust: Trust, active: Credentials, passive: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes calls, so that its connections are not idle, and connects again if closed."""
    monkeypatch.setattr(grpc_server, "_MAX_CONNECTIONS", 20)
    stranger, stop = trust.party("mallory"), Event()
    with listening(active) as (listener, address), ExitStack() as stack:
        certificate = probe(address, stranger, ACTIVE, PATIENCE)

        def hold(channel: grpc.Channel) -> None:
            call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(codec.METHOD)
            while not stop.wait(0.2):
                with suppress(grpc.RpcError):
                    list(call(iter(()), timeout=5))

        channels = [pinned_channel(address, stranger, ACTIVE, certificate) for _ in range(20)]
        threads = [Thread(target=hold, args=(channel,)) for channel in channels]
        for channel, thread in zip(channels, threads, strict=True):
            stack.callback(channel.close)
            stack.callback(thread.join, PATIENCE)
            with suppress(grpc.FutureTimeoutError):
                grpc.channel_ready_future(channel).result(0.2)
            thread.start()
        stack.callback(stop.set)
        dialed = dial(address, passive, ACTIVE, PATIENCE)
        accepted = listener.accept(PATIENCE)
        sending, receiving = accepted.channel("lane"), dialed.channel("lane")
        for number in range(50):  # the peer's connection is not closed
            sending.send(Heartbeat(number))
            assert receiving.receive(Heartbeat, PATIENCE) == Heartbeat(number)
            time.sleep(0.02)
        accepted.close()
        dialed.close()


def test_a_refused_caller_hears_why_and_is_disconnected(
    trust: Trust, active: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserved_connections, "_TO_HEAR_WHY", 0.2)
    states: list[grpc.ChannelConnectivity] = []
    with (
        listening(active) as (_, address),
        open_channel(address, trust.party("mallory"), ACTIVE) as channel,
    ):
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(codec.METHOD)
        metadata = (("florist-session", "0" * 32), ("florist-channel", "control"))
        with pytest.raises(grpc.RpcError, match="'mallory', not to the configured peer"):
            list(call(iter(()), metadata=metadata, timeout=PATIENCE))
        channel.subscribe(states.append)
        wait_until(lambda: grpc.ChannelConnectivity.IDLE in states, within=PATIENCE)


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection on which it sends nothing."""
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_an_alignment_completes_under_2000_silent_connections(tmp_path: Path) -> None:
    """The listening party may open 1,024 files only."""
    workspace = Workspace.create(tmp_path / "pair", SlowIds(active=60, passive=60, shared=20))
    address = load_config(workspace.config("active")).network.address
    with (
        more_open_files(),
        ExitStack() as stack,
        workspace.start("active") as active,
    ):
        resource.prlimit(active.process.pid, resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
        active.wait_for("has not connected")
        with workspace.start("passive") as passive:
            passive.wait_for("connected to")
            for _ in range(2000):
                stack.enter_context(connect(address))
            assert passive.finish(120) == 0, passive.output
            assert active.finish(60) == 0, active.output
        workspace.assert_aligned()


@contextmanager
def more_open_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 4096:
        pytest.skip("the test may not open enough files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 4096), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_dialer_without_free_file_descriptors_waits_for_some(
    active: Credentials, passive: Credentials
) -> None:
    reasons: list[str] = []
    with listening(active) as (listener, address), ExitStack() as held:
        waiting = Event()

        def note(reason: str) -> None:
            reasons.append(reason)
            waiting.set()

        def release() -> None:
            waiting.wait(PATIENCE)
            held.close()

        with descriptors_used_up(held):
            thread = Thread(target=release)
            thread.start()
            dialed = dial(address, passive, ACTIVE, PATIENCE, note)
            thread.join(PATIENCE)
        listener.accept(PATIENCE).close()
        dialed.close()
    assert "oo many open files" in reasons[0]


@contextmanager
def descriptors_used_up(held: ExitStack) -> Iterator[None]:
    """No file can be opened until `held` is closed."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, limits[1]))
    try:
        with suppress(OSError):
            while True:
                held.callback(os.close, os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_certificate_that_cannot_be_opened_now_is_tried_again(
    code: int, passive: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", fail)
    with pytest.raises(PeerUnavailable, match="too many open files"):
        Credentials.load(passive.authority, passive.certificate, passive.key, "telco")
    with pytest.raises(PeerUnavailable, match="too many open files"):
        passive.for_dialer(b"")


def test_a_party_raises_its_limit_of_open_files() -> None:
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512));"
        "from florist.common.core.process_limits import raise_open_file_limit;"
        "raise_open_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "512"


def test_a_party_refuses_tls_1_2_in_the_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CIPHERS, raising=False)
    workspace = Workspace.create(tmp_path / "pair")
    network = load_config(workspace.config("passive")).network
    assert network.tls is not None
    files = Credentials(network.tls.authority, network.tls.certificate, network.tls.key)
    with workspace.start("active") as active:
        active.wait_for("has not connected")
        for version, works in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
            context = files.context()
            context.minimum_version = context.maximum_version = version
            with connect(network.address) as connection:
                if works:
                    context.wrap_socket(connection, server_hostname="bank").close()
                else:
                    with pytest.raises(OSError, match=r"EOF|reset|HANDSHAKE"):
                        context.wrap_socket(connection, server_hostname="bank")
        with workspace.start("passive") as passive:
            assert (active.finish(), passive.finish()) == (0, 0)
