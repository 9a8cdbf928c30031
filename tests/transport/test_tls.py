"""Who is admitted and what both sides report; over real sockets with TLS."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import time
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

import grpc
import pytest

from florist.common.core.errors import ConfigurationError, TransportError
from florist.common.transport import codec, grpc_listener
from florist.common.transport.credentials import Credentials
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.messages import Heartbeat
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.tls_probe import probe
from tests.support.certificates import ACTIVE, LONG_AGO, PASSIVE, Trust
from tests.support.links import PATIENCE, listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.transport.grpc_listener import GrpcListener


def assert_the_right_peer_gets_in(
    listener: GrpcListener, address: str, passive: Credentials
) -> None:
    dialed = dial(address, passive, ACTIVE, PATIENCE)
    accepted = listener.accept(PATIENCE)
    accepted.channel("lane").send(Heartbeat(1))
    assert dialed.channel("lane").receive(Heartbeat, PATIENCE) == Heartbeat(1)
    accepted.close()
    dialed.close()


def refused(address: str, credentials: Credentials | None) -> str:
    """What the dialing side is told, which must not take long."""
    start = time.monotonic()
    with pytest.raises(TransportError) as caught:
        dial(address, credentials, ACTIVE, PATIENCE)
    assert not isinstance(caught.value, PeerUnavailable), "the wait was given up, not refused"
    assert time.monotonic() - start < 5
    return caught.value.reason


# -- a dialing party that must not get in ---------------------------------------------------------


@pytest.mark.parametrize("flaw", ["foreign", "expired", "of the future"])
def test_a_certificate_that_the_listener_does_not_trust(
    flaw: str,
    trust: Trust,
    stranger: Trust,
    active: Credentials,
    passive: Credentials,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_listener, "_SILENT_CONNECTION", 0.3)
    bad = {
        "foreign": lambda: stranger.party(PASSIVE, authority=trust),
        "expired": lambda: trust.party(PASSIVE, age=LONG_AGO),
        "of the future": lambda: trust.party(PASSIVE, age=-LONG_AGO),
    }[flaw]()
    with listening(active) as (listener, address):
        reason = refused(address, bad)
        assert "3 times: it was probably refused" in reason
        assert str(bad.certificate) in reason
        assert "peer's log" in reason
        with caplog.at_level(logging.WARNING), pytest.raises(TransportError) as waited:
            listener.accept(1)
        assert "ended during the TLS handshake" in caplog.text
        assert "ended during the TLS handshake" in waited.value.reason
        assert_the_right_peer_gets_in(listener, address, passive)


def test_no_certificate_at_all(active: Credentials, passive: Credentials) -> None:
    with listening(active) as (listener, address):
        credentials = grpc.ssl_channel_credentials(active.authority.read_bytes())
        options = [("grpc.ssl_target_name_override", ACTIVE)]
        with grpc.secure_channel(address, credentials, options) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(codec.METHOD)
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert_the_right_peer_gets_in(listener, address, passive)


def test_a_certificate_of_someone_else(
    trust: Trust, active: Credentials, passive: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(active) as (listener, address):
        with caplog.at_level(logging.WARNING):
            # Not even with the peer's name among its alternative names.
            reason = refused(address, trust.party("mallory", PASSIVE))
        assert "refused this party" in reason
        assert "'mallory', not to the configured peer" in reason
        assert re.search(r"refused ipv4:127\.0\.0\.1:\d+: .*'mallory'", caplog.text)
        assert_the_right_peer_gets_in(listener, address, passive)


def test_plaintext_to_a_listener_with_tls(active: Credentials, passive: Credentials) -> None:
    with listening(active) as (listener, address):
        assert "expects TLS, but this party connects without TLS" in refused(address, None)
        assert_the_right_peer_gets_in(listener, address, passive)


def test_tls_1_2_is_refused_by_the_listener(
    active: Credentials, passive: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(active) as (listener, address):
        context = passive.context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with caplog.at_level(logging.WARNING):
            answer = call_by_hand(address, context)
        assert b"uses TLSv1.2; TLS 1.3 is required" in answer
        assert "uses TLSv1.2; TLS 1.3 is required" in caplog.text
        assert_the_right_peer_gets_in(listener, address, passive)


def call_by_hand(address: str, context: ssl.SSLContext, method: str = codec.METHOD) -> bytes:
    """A gRPC call written out as HTTP/2: gRPC itself cannot be told to use an older TLS."""
    headers = {
        ":method": "POST",
        ":scheme": "https",
        ":path": method,
        ":authority": ACTIVE,
        "te": "trailers",
        "content-type": "application/grpc",
        "florist-session": "0" * 32,
        "florist-channel": "control",
    }
    block = b"".join(
        b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode()
        for k, v in headers.items()
    )
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    received = b""
    with (
        socket.create_connection(host_and_port(address), 5) as connection,
        context.wrap_socket(connection, server_hostname=ACTIVE) as line,
    ):
        line.sendall(preface + frame(1, 4, 1, block))
        while b"grpc-message" not in received:
            received += line.recv(4096)
    return received


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


# -- a listening party that must not be talked to --------------------------------------------------


@pytest.mark.parametrize(
    ("flaw", "says"),
    [
        ("foreign", "was not issued by this party's authority"),
        ("expired", "has expired"),
        ("of the future", "is not valid yet"),
        ("other name", f"is not for '{ACTIVE}'"),
        ("other common name", f"belongs to 'mallory'.*'{ACTIVE}'"),
    ],
)
def test_a_listener_that_is_not_the_peer(
    flaw: str, says: str, trust: Trust, stranger: Trust, passive: Credentials
) -> None:
    bad = {
        "foreign": lambda: stranger.party(ACTIVE, authority=trust),
        "expired": lambda: trust.party(ACTIVE, age=LONG_AGO),
        "of the future": lambda: trust.party(ACTIVE, age=-LONG_AGO),
        "other name": lambda: trust.party("mallory"),
        "other common name": lambda: trust.party("mallory", ACTIVE),
    }[flaw]()
    with listening(bad) as (_, address):
        assert re.search(says, refused(address, passive))


def test_a_listener_without_tls(passive: Credentials) -> None:
    with listening(None) as (_, address):
        assert "does not use TLS" in refused(address, passive)


def test_a_listener_with_an_older_tls(active: Credentials, passive: Credentials) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(active.certificate, active.key)
    with python_server(context) as address:
        assert "does not support TLS 1.3" in refused(address, passive)


@contextmanager
def python_server(context: ssl.SSLContext) -> Iterator[str]:
    """Shakes hands with one that comes."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection, pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(PATIENCE)


def test_a_server_that_is_not_a_party(active: Credentials, passive: Credentials) -> None:
    server = grpc.server(None, options=[("grpc.so_reuseport", 0)])  # type: ignore[arg-type]
    port = server.add_secure_port("127.0.0.1:0", active.for_listener(lambda: None))
    server.start()
    try:
        assert "is not a FLORIST party" in refused(f"127.0.0.1:{port}", passive)
    finally:
        server.stop(None).wait(PATIENCE)


# -- the rest --------------------------------------------------------------------------------------


def test_parties_identify_each_other_by_name_on_any_host(
    trust: Trust, passive: Credentials
) -> None:
    """A certificate need not know the address: the party's name is what counts."""
    with listening(trust.party(ACTIVE, "elsewhere.example", "192.0.2.1")) as (listener, address):
        assert_the_right_peer_gets_in(listener, f"localhost:{host_and_port(address)[1]}", passive)


def test_a_probe_starts_no_session(active: Credentials, passive: Credentials) -> None:
    with listening(active) as (listener, address):
        probe(address, passive, ACTIVE, PATIENCE)
        with pytest.raises(TransportError, match="did not connect"):
            listener.accept(0.2)


def test_both_sides_warn_about_plaintext(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), listening(None) as (listener, address):
        dialed = dial(address, None, ACTIVE, PATIENCE)
        listener.accept(PATIENCE).close()
        dialed.close()
    assert caplog.text.count("TLS is off") == 2


def test_credentials_are_checked_when_loaded(trust: Trust, tmp_path: Path) -> None:
    good = trust.party(PASSIVE)
    assert Credentials.load(good.authority, good.certificate, good.key, PASSIVE) == good
    with pytest.raises(ConfigurationError, match=f"belongs to '{PASSIVE}'"):
        Credentials.load(good.authority, good.certificate, good.key, ACTIVE)
    missing = Credentials(tmp_path / "none.pem", good.certificate, good.key)
    with pytest.raises(ConfigurationError, match=r"none\.pem"):
        missing.context()
    with pytest.raises(ConfigurationError, match=r"none\.pem"):
        missing.context()
    assert "PRIVATE" not in repr(good)
