from __future__ import annotations

import re
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.core.ports import free_port
from florist.common.observability.server import MAX_CONNECTIONS, status_server
from florist.common.observability.snapshot import About
from florist.common.observability.status import Status
from florist.common.transport.in_memory import linked_pair
from tests.support.observability import ABOUT, get, get_status, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

PATHS = ("/", "/status.css", "/status.js", "/status.json", "/metrics", "/healthz", "/readyz")


@pytest.fixture
def status() -> Status:
    return Status(ABOUT)


@pytest.fixture
def address(status: Status) -> Iterator[str]:
    with status_server(f"127.0.0.1:{free_port()}", status) as address:
        yield address


def test_health_and_readiness(address: str, status: Status) -> None:
    assert get(address, "/healthz")[::2] == (200, "ok\n")
    assert get(address, "/readyz")[::2] == (503, "not connected to the peer yet\n")
    with status.connected(linked_pair()[0]):
        assert get(address, "/readyz")[::2] == (200, "ok\n")
    status.fail("data.train: gone")
    assert get(address, "/healthz")[::2] == (503, "data.train: gone\n")
    assert get(address, "/readyz").code == 503


@pytest.mark.parametrize("path", PATHS)
def test_every_reply_has_security_headers(address: str, path: str) -> None:
    headers = get(address, path).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Server"] == "florist"


def test_other_methods_and_paths_are_refused(address: str) -> None:
    assert get(address, "/elsewhere").code == 404
    assert get(address, "/../../etc/passwd").code == 404
    assert get(address, "/healthz?verbose=1").code == 200
    for method in ("POST", "PUT", "DELETE", "HEAD"):
        assert get(address, "/healthz", method).code == 501


def test_the_page_loads_no_external_resource(address: str) -> None:
    page, script, style = (get(address, path).text for path in PATHS[:3])
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page + script + style)
    assert "style=" not in page
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_names_are_escaped() -> None:
    about = About("<script>alert(1)</script>", "telco", "active", "1")
    with status_server(f"127.0.0.1:{free_port()}", Status(about)) as address:
        assert "<script>alert" not in get(address, "/").text
        assert get_status(address)["about"]["party"] == about.party
        assert parsed(get(address, "/metrics").text)


def test_other_host_names_are_refused_on_loopback(address: str) -> None:
    port = address.rpartition(":")[2]
    for good in (address, f"localhost:{port}", "localhost"):
        assert get(address, "/healthz", headers={"Host": good}).code == 200
    for bad in ("evil.example", f"evil.example:{port}", "[::"):
        assert get(address, "/status.json", headers={"Host": bad}).code == 421


def test_any_host_name_is_accepted_on_other_addresses(status: Status) -> None:
    port = free_port()
    with status_server(f"0.0.0.0:{port}", status):
        reply = get(f"127.0.0.1:{port}", "/healthz", headers={"Host": "active:9631"})
        assert reply.code == 200


def test_a_port_in_use_is_an_error_that_names_the_key(address: str, status: Status) -> None:
    with (
        pytest.raises(
            ConfigurationError, match=r"observability\.address: cannot listen at .* in use"
        ),
        status_server(address, status),
    ):
        pass


def test_clients_that_hang_do_not_block_others(address: str) -> None:
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            hung = stack.enter_context(socket.create_connection((host, int(port))))
            hung.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        started = time.monotonic()
        assert get(address, "/healthz").code == 200
        assert time.monotonic() - started < 4  # before any of them times out


def test_garbage_is_refused_and_the_server_stays_up(address: str) -> None:
    host, _, port = address.rpartition(":")
    for garbage in (b"\x00\xff" * 100 + b"\r\n\r\n", b"GET " + b"/" * 70_000, b"\r\n" * 1000):
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    assert get(address, "/healthz").code == 200


def test_the_port_is_free_afterwards(status: Status) -> None:
    address = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        with status_server(address, status):
            assert get(address, "/healthz").code == 200
    with pytest.raises(ConnectionRefusedError):
        get(address, "/healthz")
