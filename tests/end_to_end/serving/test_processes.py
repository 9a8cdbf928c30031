"""Both services as processes: started by the command, used, and stopped by SIGTERM."""

from __future__ import annotations

import http.client
import json
import signal
import stat
import subprocess
import sys
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from florist.cli.tool import app
from florist.common.core.errors import PeerLost
from florist.common.core.ports import free_port
from florist.common.settings.loader import load_config
from florist.passive_party.serving import PredictionClient
from tests.support.links import free_address
from tests.support.observability import get, parsed
from tests.support.parties import ROLES
from tests.support.serving import halves, table_of, whole_model
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.parties import Workspace


@pytest.fixture
def workspace(plain: Workspace, tmp_path: Path) -> Workspace:
    """A copy with its own addresses."""
    copy = plain.copy(tmp_path / "pair")
    for role in ("active", "passive"):
        address = f"127.0.0.1:{free_port()}" if role == "active" else addresses(copy)
        copy.configure(role, {"network.address": address, "serving.drain_timeout": 10.0})
    copy.configure("passive", {"serving.http.address": free_address()})
    return copy


def addresses(workspace: Workspace) -> str:
    return load_config(workspace.config("active")).network.address


def ask(address: str, token: str, rows: list[dict[str, object]]) -> list[float]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/predict", json.dumps({"rows": rows}), headers)
        answer: list[float] = json.loads(connection.getresponse().read())["probabilities"]
        return answer
    finally:
        connection.close()


def test_from_the_command_to_a_prediction(workspace: Workspace, tmp_path: Path) -> None:
    raw = table_of(workspace, "passive")
    table = raw.columns
    truth = whole_model(workspace, halves(workspace)[1].preprocessing.transform(raw))
    config = load_config(workspace.config("passive"))
    with (
        workspace.start_warm("passive", stage="serve") as passive,  # either may start first
        workspace.start_warm("active", stage="serve") as active,
    ):
        active.wait_for("ready at ", 60)
        passive.wait_for("ready at http://", 60)
        token_file = config.run_directory / "serving" / "http-token"
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        token = token_file.read_text().strip()
        assert token not in passive.output
        found = ask(config.serving.http.address, token, table.slice(0, 3).to_pylist())
        np.testing.assert_allclose(found, truth[:3], atol=1e-6)

        parquet.write_table(table, tmp_path / "rows.parquet")
        command = ["predict", "--config", str(workspace.config("passive"))]
        command += ["--input", str(tmp_path / "rows.parquet")]
        command += ["--output", str(tmp_path / "out.parquet")]
        run = CliRunner().invoke(app, command, catch_exceptions=False)
        assert run.exit_code == 0, run.output
        assert f"{len(table):,} predictions" in run.stdout
        np.testing.assert_allclose(
            parquet.read_table(tmp_path / "out.parquet").column(0).to_numpy(), truth, atol=1e-6
        )

        for party in (passive, active):
            party.signal(signal.SIGTERM)
            assert party.finish(30) == 0, party.output
            assert "stopped" in party.output


def test_services_report_their_status(workspace: Workspace) -> None:
    rows = table_of(workspace, "passive").columns.slice(0, 3).to_pylist()
    config = load_config(workspace.config("passive"))
    status = {role: free_address() for role in ROLES}
    for role in ROLES:
        workspace.configure(role, {"observability.address": status[role]})
    with (
        workspace.start_warm("active", stage="serve") as active,
        workspace.start_warm("passive", stage="serve") as passive,
    ):
        active.wait_for("ready at ", 60)
        passive.wait_for("ready at http://", 60)
        token = (config.run_directory / "serving" / "http-token").read_text().strip()
        ask(config.serving.http.address, token, rows)
        with pytest.raises(KeyError):  # refused
            ask(config.serving.http.address, "another token", rows)
        seen = {role: parsed(get(status[role], "/metrics").text) for role in ROLES}
        for way, reverse in (("sent", "received"), ("received", "sent")):
            ours = seen["active"][f"florist_{way}_bytes_total", ()]
            assert ours == seen["passive"][f"florist_{reverse}_bytes_total", ()] > 0
        refused = "florist_requests_refused_total", (("reason", "HTTP 401"),)
        assert (seen["active"].get(refused), seen["passive"].get(refused)) == (None, 1)
        for role, told in seen.items():
            assert get(status[role], "/readyz").code == 200
            assert told["florist_requests_total", ()] == 1
            assert 0 < told["florist_request_seconds", (("quantile", "0.99"),)] < 30
            assert told["florist_stage", (("stage", "serve"),)] == 1
            assert told["florist_rows_total", (("stage", "serve"),)] == len(rows)
            assert told.get(("florist_peer_up", ())) == (None if role == "active" else 1)
        active.signal(signal.SIGTERM)
        assert active.finish(30) == 0, active.output
        wait_until(lambda: get(status["passive"], "/readyz").code != 200, within=30, every=0.2)
        assert get(status["passive"], "/readyz").text == "the peer is not serving\n"
        assert get(status["passive"], "/healthz").code == 200


def test_sigterm_lets_a_stream_finish_and_refuses_new_requests(workspace: Workspace) -> None:
    table = table_of(workspace, "passive").columns.slice(0, 10)
    with workspace.start_warm("active", stage="serve") as active:
        active.wait_for("ready at ", 60)
        with PredictionClient.connect(workspace.config("passive"), timeout=30) as client:
            stopping = Event()

            def tables() -> Iterator[pa.Table]:
                yield table
                assert stopping.wait(30)
                yield table

            answers = client.predict_batches(tables())
            assert len(next(answers)) == 10
            active.signal(signal.SIGTERM)
            active.wait_for("stopping: open requests have 10 s", 20)
            with pytest.raises(PeerLost, match="the service is being stopped"):
                client.predict(table)
            stopping.set()
            assert len(next(answers)) == 10
            assert list(answers) == []
            assert active.finish(20) == 0, active.output
            assert "did not finish" not in active.output


def test_an_endless_stream_is_cancelled_in_time(workspace: Workspace) -> None:
    for role in ("active", "passive"):
        workspace.configure(role, {"serving.drain_timeout": 0.5})
    table = table_of(workspace, "passive").columns.slice(0, 10)
    with workspace.start_warm("active", stage="serve") as active:
        active.wait_for("ready at ", 60)
        with PredictionClient.connect(workspace.config("passive"), timeout=30) as client:
            ended = Event()

            def consume() -> None:
                with pytest.raises(PeerLost):
                    for _ in client.predict_batches(iter(lambda: table, None)):
                        pass
                ended.set()

            consumer = Thread(target=consume)
            consumer.start()
            active.signal(signal.SIGTERM)
            assert active.finish(20) == 0, active.output
            assert ended.wait(20)
            consumer.join()


def test_without_a_model_the_error_names_the_fix(workspace: Workspace) -> None:
    for role in ("active", "passive"):
        run = workspace.run_directory(role)
        run.training.rename(run.path / "elsewhere")
        with workspace.start_warm(role, stage="serve") as party:
            assert party.finish(60) == 2
            assert (
                "contains no trained model; run `florist-party --stage train` first" in party.output
            )


def test_the_commands_do_not_load_a_web_server() -> None:
    check = (
        "import sys, florist.cli.tool, florist.cli.party;"
        "sys.exit(bool({'starlette', 'uvicorn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
