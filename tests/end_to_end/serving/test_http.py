"""The HTTP service of the passive party, over real sockets and fuzzed from its description."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError
from florist.common.reports.html import COPY_SCRIPT
from florist.common.settings.serving import Http
from florist.passive_party import readiness
from florist.passive_party.http_service import http_service
from florist.passive_party.serving import PredictionClient
from tests.support.clocks import FakeClock
from tests.support.links import free_address
from tests.support.serving import client_of, halves, service, table_of, whole_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.clock import Clock
    from florist.common.transport.grpc_prediction_server import PredictionServer
    from tests.support.parties import Workspace

TOKEN = "a-token-for-tests-0123456789"


@dataclass
class Api:
    """The address of the service, and a client for it."""

    address: str
    peer: PredictionServer

    def ask(
        self,
        body: object = None,
        *,
        raw: bytes | None = None,
        path: str = "/predict",
        method: str = "POST",
        **headers: str,
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of the answer."""
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        content = json.dumps(body).encode() if raw is None else raw
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, content, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            text = answer.read()
            found = dict(answer.getheaders())
            is_json = found.get("content-type", "") == "application/json"
            return answer.status, found, json.loads(text) if is_json else text.decode()
        finally:
            connection.close()


@contextmanager
def api_of(
    workspace: Workspace,
    limits: dict[str, int] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    **http_settings: object,
) -> Iterator[Api]:
    settings = Http.model_validate({"address": free_address(), **http_settings})
    with (
        service(workspace, limits=limits or {}) as peer,
        client_of(workspace, peer.address, answer_timeout=5.0) as client,
        http_service(client, settings, TOKEN, drain=5.0, clock=clock) as address,
    ):
        yield Api(address, peer)


@pytest.fixture(scope="module")
def api(plain: Workspace) -> Iterator[Api]:
    with api_of(plain, max_rows=20, max_bytes=60_000) as found:
        yield found


def rows_of(workspace: Workspace, count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        table_of(workspace, "passive").columns.slice(0, count).to_pylist()
    )
    return rows


def test_rows_get_the_predictions_of_the_model(plain: Workspace, api: Api) -> None:
    raw = table_of(plain, "passive")
    truth = whole_model(plain, halves(plain)[1].preprocessing.transform(raw))
    status, _, answer = api.ask({"rows": rows_of(plain, 7)})
    assert status == 200
    np.testing.assert_allclose(answer["probabilities"], truth[:7], atol=1e-6)


def test_health_readiness_and_documentation(api: Api) -> None:
    for path in ("/health", "/ready"):
        assert api.ask(path=path, method="GET", Authorization="")[::2] == (200, {"status": "ok"})
    status, _, described = api.ask(path="/openapi.json", method="GET")
    assert (status, described["openapi"]) == (200, "3.1.0")
    status, headers, page = api.ask(path="/", method="GET")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert "/predict \\\n  -H" in page, "the lines of the example stay lines"
    assert page.count("<script") == page.count(COPY_SCRIPT) == 1
    assert "script-src &#x27;sha256-" in page
    assert TOKEN not in page


@pytest.mark.parametrize("path", ["/openapi.json", "/"])
def test_column_names_are_shown_only_with_the_token(plain: Workspace, api: Api, path: str) -> None:
    columns = table_of(plain, "passive").features
    names = [*columns.numeric, *columns.categorical]
    status, headers, with_token = api.ask(path=path, method="GET")
    assert (status, headers["cache-control"]) == (200, "no-store")
    assert all(name in str(with_token) for name in names)
    status, _, without = api.ask(path=path, method="GET", Authorization="")
    assert status == 200
    assert "token" in str(without)
    shown = re.sub("sha256-[^&]+", "", str(without))  # a digest may contain a short name
    assert not any(name in shown for name in names)
    assert api.ask(path=path, method="GET", Authorization="Bearer wrong")[0] == 401


def test_other_host_names_are_refused(api: Api) -> None:
    port = api.address.rpartition(":")[2]
    for good in (api.address, f"localhost:{port}", "localhost"):
        assert api.ask(path="/health", method="GET", Host=good)[0] == 200
    for bad in ("evil.example", f"evil.example:{port}", "localhost.evil.example"):
        for path in ("/", "/openapi.json", "/health", "/ready", "/else"):
            status, _, answer = api.ask(path=path, method="GET", Host=bad)
            assert (status, answer) == (421, {"error": "wrong host name"})
        assert api.ask({"rows": []}, Host=bad)[0] == 421


def test_readiness_is_cached(plain: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = []

    def probe(client: PredictionClient) -> bool:
        del client
        probes.append(1)
        return len(probes) != 2

    monkeypatch.setattr(PredictionClient, "is_ready", probe)
    clock = FakeClock()
    with api_of(plain, clock=clock) as api:

        def statuses() -> set[int]:
            return {api.ask(path="/ready", method="GET")[0] for _ in range(5)}

        assert (statuses(), len(probes)) == ({200}, 1)
        clock.advance(readiness.LIFETIME)
        assert (statuses(), len(probes)) == ({503}, 2)
        clock.advance(readiness.LIFETIME / 2)
        assert (statuses(), len(probes)) == ({503}, 2)
        clock.advance(readiness.LIFETIME / 2)
        assert (statuses(), len(probes)) == ({200}, 3)


def test_parsing_a_body_does_not_block_other_requests(
    plain: Workspace, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, started, go = json.loads, threading.Event(), threading.Event()

    def slow(text: str | bytes, **options: Any) -> object:  # noqa: ANN401 - as of json.loads
        if isinstance(text, bytes) and b'"rows"' in text:
            started.set()
            assert go.wait(20), "the event loop was blocked"
        return parse(text, **options)

    body = {"rows": rows_of(plain, 1)}
    monkeypatch.setattr(json, "loads", slow)
    with ThreadPoolExecutor(1) as other:
        predicting = other.submit(api.ask, body)
        assert started.wait(20)
        assert api.ask(path="/health", method="GET")[0] == 200
        go.set()
        assert predicting.result(timeout=30)[0] == 200


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer é"])
def test_requests_without_the_token_are_refused(api: Api, shown: str) -> None:
    status, headers, answer = api.ask({"rows": []}, Authorization=shown)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert answer == {"error": "the token is missing or wrong"}


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"{", 400, "not valid JSON"),
        (b'{"rows": [NaN]}', 400, "not valid JSON"),
        (b"[" * 50_000, 400, "not valid JSON"),
        (b"\xff\xfe", 400, "not valid JSON"),
        (b"[]", 422, 'an object with the single key "rows"'),
        (b'{"rows": [], "more": 1}', 422, 'an object with the single key "rows"'),
        (b'{"rows": {}}', 422, '"rows" must be a list of objects'),
        (b'{"rows": [1]}', 422, '"rows" must be a list of objects'),
        (b'{"rows": []}', 422, "1 to 20 entries, not 0"),
        (json.dumps({"rows": [{}] * 21}).encode(), 422, "1 to 20 entries, not 21"),
        (b'{"rows": [{}]}', 422, "row 0: lacks columns"),
        (b'{"rows": [' + b" " * 60_000 + b"]}", 413, "longer than 60,000 bytes"),
    ],
)
def test_invalid_bodies(api: Api, body: bytes, status: int, problem: str) -> None:
    found, _, answer = api.ask(raw=body)
    assert found == status
    assert problem in answer["error"]


def test_errors_about_rows_name_row_and_column(plain: Workspace, api: Api) -> None:
    rows = rows_of(plain, 3)
    column = table_of(plain, "passive").features.numeric[2]
    rows[1][column] = "many"
    status, _, answer = api.ask({"rows": rows})
    assert status == 422
    assert f"row 1, column '{column}': must be a number" in answer["error"]
    rows[1][column] = math.inf  # written as 1e999, which is valid JSON
    body = json.dumps({"rows": rows}).replace("Infinity", "1e999").encode()
    assert api.ask(raw=body)[0] == 422


def test_other_content_types_methods_and_paths(api: Api) -> None:
    assert api.ask({"rows": []}, Content_Type="text/plain")[0] == 415
    assert api.ask({"rows": []}, Content_Type="")[0] == 415
    status, headers, answer = api.ask(method="GET")
    assert (status, headers["allow"], answer) == (405, "POST", {"error": "Method Not Allowed"})
    assert api.ask(path="/else")[0] == 404


def test_limits_and_absence_of_the_peer(plain: Workspace) -> None:
    rows = rows_of(plain, 6)
    with api_of(plain, {"rows_per_minute": 10}) as api:
        assert api.ask({"rows": rows})[0] == 200
        status, headers, answer = api.ask({"rows": rows})
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 13
        assert "10 rows per minute" in answer["error"]
        api.peer.close()
        assert api.ask(path="/ready", method="GET")[0] == 503
        status, _, answer = api.ask({"rows": rows})
        assert status == 503
        assert "does not serve predictions now" in answer["error"]
        assert api.ask(path="/health", method="GET")[0] == 200


def test_people_by_id(featured: Workspace) -> None:
    ids = [identifier.decode() for identifier in table_of(featured, "passive").ids][:5]
    with api_of(featured) as api:
        status, _, answer = api.ask({"ids": ids})
        assert status == 200
        assert len(answer["probabilities"]) == 5
        assert api.ask({"rows": [{}]})[0] == 422
        status, _, answer = api.ask({"ids": ["nobody"]})
        assert status == 422
        assert "not in this party's aligned table" in answer["error"]
        status, _, answer = api.ask(raw=b'{"ids": ["\\ud800"]}')
        assert (status, "lone surrogate" in answer["error"]) == (422, True)
        assert api.ask(path="/openapi.json", method="GET")[2]["components"]["schemas"]["Request"][
            "required"
        ] == ["ids"]
        assert "curl" in api.ask(path="/", method="GET")[2]


def test_an_address_in_use(plain: Workspace) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        service(plain) as peer,
        client_of(plain, peer.address) as client,
    ):
        taken = Http(address=f"127.0.0.1:{other.getsockname()[1]}")
        with (
            pytest.raises(ConfigurationError, match=r"serving\.http\.address: cannot listen"),
            http_service(client, taken, TOKEN, drain=1.0),
        ):
            pass


@pytest.mark.parametrize(
    "examples", [pytest.param(12, id="few"), pytest.param(400, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_the_service_conforms_to_its_openapi_description(
    plain: Workspace, mode: GenerationMode, examples: int
) -> None:
    """Valid and invalid requests generated from the description, with all checks."""
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    tried = []

    def obeys(case: schemathesis.Case[Any]) -> None:
        tried.append(case.path)
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)

    with api_of(plain, max_rows=2) as api:
        schema = schemathesis.openapi.from_url(
            f"http://{api.address}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            if mode is GenerationMode.NEGATIVE and operation.path != "/predict":
                continue  # a request without a body cannot be invalid
            cases = operation.as_strategy(generation_mode=mode)
            settings(hypothesis.given(case=cases)(obeys))()
    assert tried.count("/predict") >= 10
