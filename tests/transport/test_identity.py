"""A peer is identified on the session's own connection, by its exact name and, if set, its key."""

from __future__ import annotations

import hashlib
import socket
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from florist.common.core.errors import TransportError
from florist.common.settings.loader import load_config
from florist.common.transport.credentials import Credentials
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.peer_unavailable import PeerUnavailable
from florist.common.transport.tls_probe import probe
from tests.support.certificates import ACTIVE, PASSIVE, Trust
from tests.support.links import PATIENCE, listening
from tests.support.parties import ROLES, Workspace, other

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName


def near_misses(name: str) -> list[tuple[str, ...]]:
    """Common names that look like `name`."""
    head, tail = name[:3], name[3:]
    return [
        (f"{name}\n",),
        (f" {name}",),
        (f"{name} ",),
        (f"{head}\u200b{tail}",),
        (f"{name}\0",),
        (name.upper(),),
        (name, "mallory"),
        ("mallory", name),
        (name, name),
    ]


def key_of(credentials: Credentials) -> str:
    """The digest, computed as `openssl pkey -pubin -outform der | sha256sum` does."""
    certificate = x509.load_pem_x509_certificate(credentials.certificate.read_bytes())
    encoded = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()


def refusal(address: str, credentials: Credentials) -> str:
    with pytest.raises(TransportError) as caught:
        dial(address, credentials, ACTIVE, PATIENCE).close()
    assert not isinstance(caught.value, PeerUnavailable)
    return caught.value.reason


@pytest.mark.parametrize("names", near_misses(PASSIVE), ids=ascii)
def test_the_listener_admits_only_the_exact_name(
    names: tuple[str, ...], trust: Trust, active: Credentials
) -> None:
    with listening(active) as (listener, address):
        reason = refusal(address, trust.with_common_names(*names, listed=PASSIVE))
        assert "not to the configured peer" in reason
        with pytest.raises(TransportError):
            listener.accept(0.1)


@pytest.mark.parametrize("names", near_misses(ACTIVE), ids=ascii)
def test_the_dialer_connects_only_to_the_exact_name(
    names: tuple[str, ...], trust: Trust, passive: Credentials
) -> None:
    with listening(trust.with_common_names(*names, listed=ACTIVE)) as (_, address):
        assert "exactly the peer's name" in refusal(address, passive)


@contextmanager
def relay(choose: Callable[[int], str]) -> Iterator[str]:
    """Forwards connections; `choose` maps the number of a connection to its target."""
    sockets: list[socket.socket] = []

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            for number in count():
                near, _ = server.accept()
                host, _, port = choose(number).rpartition(":")
                far = socket.create_connection((host, int(port)))
                sockets.extend((near, far))
                for pair in ((near, far), (far, near)):
                    Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)
            for each in sockets:
                each.close()


def test_a_relay_cannot_swap_the_peer_after_the_probe(
    trust: Trust, active: Credentials, passive: Credentials
) -> None:
    """It forwards each first connection to the peer, and each second one to another party."""
    mallory = trust.party("mallory", ACTIVE)
    with (
        listening(active) as (_, good),
        listening(mallory) as (thief, bad),
        relay(lambda number: bad if number % 2 else good) as address,
    ):
        with pytest.raises(TransportError):
            dial(address, passive, ACTIVE, 3).close()
        with pytest.raises(TransportError, match="did not connect"):
            thief.accept(0.2)


def test_an_honest_relay_does_no_harm(active: Credentials, passive: Credentials) -> None:
    with (
        listening(active) as (listener, good),
        relay(lambda _: good) as address,
        closing(dial(address, passive, ACTIVE, PATIENCE)),
        closing(listener.accept(PATIENCE)),
    ):
        pass


def test_pinned_keys_are_required_on_both_sides(trust: Trust, active: Credentials) -> None:
    first = trust.party(PASSIVE)
    pin = key_of(first)
    pinned = replace(active, peer_key_sha256=pin)
    with listening(pinned) as (listener, address):
        own = replace(first, peer_key_sha256=key_of(active))
        with closing(dial(address, own, ACTIVE, PATIENCE)):
            listener.accept(PATIENCE).close()
        # The same name and authority, but another key.
        other = trust.with_common_names(PASSIVE, listed=PASSIVE)
        assert f"the SHA-256 of its public key is {key_of(other)}" in refusal(address, other)
        wrong = replace(first, peer_key_sha256=key_of(other))
        reason = refusal(address, wrong)
        assert key_of(active) in reason
        assert f"network.tls.peer_key_sha256 is {key_of(other)}" in reason


def test_parties_with_pinned_keys_align_and_a_wrong_pin_stops_the_dialer(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    keys = {role: key_of(files_of(workspace, role)) for role in ROLES}
    for role in ROLES:
        workspace.configure(role, {"network.tls.peer_key_sha256": keys[other(role)].upper()})
    with workspace.start("active") as active, workspace.start("passive") as passive:
        assert (active.finish(), passive.finish()) == (0, 0)
    workspace.configure("passive", {"network.tls.peer_key_sha256": keys["passive"]})
    with workspace.start("active", "--force") as active:
        active.wait_for("has not connected")
        with workspace.start("passive", "--force") as passive:
            assert passive.finish() == 3
            assert f"peer_key_sha256 is {keys['passive']}" in passive.output


def files_of(workspace: Workspace, role: RoleName) -> Credentials:
    tls = load_config(workspace.config(role)).network.tls
    assert tls is not None
    return Credentials(tls.authority, tls.certificate, tls.key)


def test_a_probe_returns_the_certificate_to_pin(active: Credentials, passive: Credentials) -> None:
    with listening(active) as (_, address):
        pem = probe(address, passive, ACTIVE, PATIENCE)
        assert pem is not None
        found = x509.load_pem_x509_certificate(pem)
    assert found == x509.load_pem_x509_certificate(active.certificate.read_bytes())
