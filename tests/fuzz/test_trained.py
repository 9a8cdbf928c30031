"""A trained model: damaged files, and its HTTP service with arbitrary requests."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from florist.common.bundle.loading import load_bundle
from florist.common.core.errors import FloristError, ProtocolViolation
from florist.common.settings.serving import Http
from florist.common.transport.messages import PredictionReply
from florist.passive_party import http_connection
from florist.passive_party import http_service as service_module
from florist.passive_party.http_service import http_service
from tests.fuzz.damage import damaged
from tests.support.links import free_address
from tests.support.serving import QuickModel, client_of, service, table_of, train_pair
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.session.run_directory import RunDirectory
    from florist.passive_party.serving import PredictionClient
    from tests.support.parties import Workspace

TOKEN = "a-token-for-tests-0123456789"

few = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Api:
    host: str
    port: int
    #: A request that is answered.
    good: bytes
    #: Through which it asks the other party.
    client: PredictionClient

    def ask(self, body: bytes) -> int:
        """The status of the answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/predict", body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def say(self, *parts: bytes) -> bytes:
        """What comes back to these bytes until the service closes, or says no more."""
        with socket.create_connection((self.host, self.port), 10) as line:
            heard = b""
            try:
                for part in parts:
                    line.sendall(part)
                line.settimeout(1.5)
                while more := line.recv(1 << 16):
                    heard += more
            except OSError:
                pass
            return heard


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return train_pair(tmp_path_factory.mktemp("trained") / "pair", QuickModel())


@pytest.fixture(scope="module")
def api(workspace: Workspace) -> Iterator[Api]:
    rows = table_of(workspace, "passive").columns.slice(0, 2).to_pylist()
    settings_of_it = Http(address=free_address(), max_rows=20, max_bytes=60_000)
    with (
        service(workspace) as peer,
        client_of(workspace, peer.address, answer_timeout=10.0) as client,
        http_service(client, settings_of_it, TOKEN, drain=2.0) as address,
    ):
        host, _, port = address.rpartition(":")
        yield Api(host, int(port), json.dumps({"rows": rows}).encode(), client)


def _load_damaged(runs: RunDirectory, role: RoleName, path: Path) -> None:
    @settings(few, max_examples=15)
    @given(damaged([path.read_bytes()]))
    def holds(data: bytes) -> None:
        path.write_bytes(data)
        with suppress(FloristError):
            load_bundle(runs, role)

    holds()


@pytest.mark.parametrize("role", ["active", "passive"])
def test_a_damaged_bundle_is_loaded_or_refused(workspace: Workspace, role: RoleName) -> None:
    runs = workspace.run_directory(role)
    files = [runs.training / "model.json", runs.training / "model.safetensors"]
    files += (runs.training / "preprocessing").iterdir()
    assert len(files) == 4
    for path in files:
        whole = path.read_bytes()

        _load_damaged(runs, role, path)
        path.write_bytes(whole)
    load_bundle(runs, role)


@given(st.binary(max_size=20), st.integers(1, 4))
def test_an_answer_is_as_many_probabilities_as_rows_or_refused(
    api: Api, data: bytes, rows: int
) -> None:
    try:
        found = api.client._probabilities(PredictionReply(data), rows)
    except ProtocolViolation:
        return
    assert len(found) == rows
    assert all(0 <= each <= 1 for each in found)


def test_any_body_is_answered_or_refused(api: Api) -> None:
    @few
    @given(damaged([api.good]) | st.binary(max_size=100))
    def holds(body: bytes) -> None:
        assert api.ask(body) in (200, 400, 413, 422)

    holds()
    assert api.ask(b'{"rows": [' + b'"\\ud800",' * 3 + b'"\\udfff"]}') == 422
    assert api.ask(b'{"rows": [{"\\ud800": 1}]}') == 422
    assert api.ask(api.good) == 200


def test_any_bytes_are_answered_or_refused(api: Api) -> None:
    head = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer " + TOKEN.encode() + b"\r\nConnection: close\r\n"
    )
    whole = head + b"Content-Length: %d\r\n\r\n" % len(api.good) + api.good
    assert api.say(whole).startswith(b"HTTP/1.1 200")

    @settings(few, max_examples=12)
    @given(damaged([whole]))
    def holds(data: bytes) -> None:
        heard = api.say(data)
        assert not heard.startswith(b"HTTP/1.1 500")

    holds()
    assert api.say(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000).startswith(b"HTTP/1.1 400")
    huge = head + b"Content-Length: 99999999999\r\n\r\n" + bytes(100_000)
    assert api.say(huge).startswith(b"HTTP/1.1 413")
    assert api.ask(api.good) == 200


def test_silent_connections_do_not_block_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are served at once; some say half a word."""
    monkeypatch.setattr(http_connection, "HEAD_TIMEOUT", 5.0)
    with ExitStack() as lines:
        for number in range(300):
            line = lines.enter_context(socket.create_connection((api.host, api.port), 10))
            line.sendall(b"POST /"[: number % 7])
        wait_until(lambda: api.ask(api.good) == 503, within=4)  # the limit holds

        def is_served() -> bool:
            status = api.ask(api.good)
            assert status in {200, 503}
            return status == 200

        wait_until(is_served, within=40)


def test_a_body_that_is_not_sent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_BODY_TIMEOUT", 0.3)
    head = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer " + TOKEN.encode() + b"\r\nContent-Length: 1000\r\n\r\n"
    )
    assert api.say(head, b"{").startswith(b"HTTP/1.1 408")
    assert api.ask(api.good) == 200
