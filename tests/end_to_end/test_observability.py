"""The status of real parties during a run, and that it does not reveal who is shared."""

from __future__ import annotations

import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from florist.active_party.role import ACTIVE
from florist.cli.tool import app
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.session.stage_state import StageOptions
from florist.common.settings.loader import load_config
from florist.common.stages.observe import observing
from florist.common.stages.run_stages import run_stage
from florist.passive_party.role import PASSIVE
from tests.support.observability import get, get_status, parsed
from tests.support.parties import ROLES, QuickClicks, Workspace
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from tests.support.observability import Samples
    from tests.support.parties import Party

#: The metrics that a party may report. What is added must be known to both parties or an aggregate.
ALLOWED: dict[str, set[str]] = {
    "florist_info": {"party", "peer", "role", "release"},
    "florist_stage": {"stage"},
    "florist_rows_total": {"stage"},
    "florist_step_done": {"step"},
    "florist_step_total": {"step"},
    "florist_audit_verdict": {"verdict"},
    "florist_audit_auc": {"attack", "over"},
    "florist_audit_auc_low": {"attack", "over"},
    "florist_audit_auc_high": {"attack", "over"},
    "florist_audit_limit": {"then"},
    "florist_uptime_seconds": set(),
    "florist_failed": set(),
    "florist_ready": set(),
    "florist_rows_per_second": set(),
    "florist_peer_up": set(),
    "florist_reconnects_total": set(),
    "florist_sent_bytes_total": set(),
    "florist_received_bytes_total": set(),
    "florist_waiting_seconds_total": set(),
    "florist_certificate_days_left": set(),
    "florist_privacy_budget_left": set(),
    "florist_training_step": set(),
    "florist_training_steps": set(),
    "florist_training_epoch": set(),
    "florist_training_epochs": set(),
    "florist_loss": set(),
    "florist_auc": set(),
    "florist_audit_step": set(),
    "florist_requests_total": set(),
    "florist_requests_per_second": set(),
    "florist_request_seconds": {"quantile"},
    "florist_requests_refused_total": {"reason"},
}


@dataclass(frozen=True)
class LongerClicks(QuickClicks):
    """A sample whose training takes some seconds."""

    people: int = 3000

    def settings(self, role: RoleName) -> dict[str, Any]:
        return QuickClicks.settings(self, role) | {
            "agreement.training.epochs": 3,
            "agreement.training.checkpoint_every": 50,
            "timeouts.silence": 3.0,
        }


def watched(workspace: Workspace, linger: float = 0.0) -> dict[RoleName, str]:
    """Give both parties a status page, and return the addresses."""
    addresses = {role: f"127.0.0.1:{free_port()}" for role in ROLES}
    for role, address in addresses.items():
        workspace.configure(
            role, {"observability.address": address, "observability.linger": linger}
        )
    return addresses


def scrape(address: str) -> Samples | None:
    try:
        return parsed(get(address, "/metrics").text)
    except OSError:
        return None  # not up yet, or no longer


def wait_for_status(address: str, holds: Callable[[dict[str, Any]], bool], party: Party) -> None:
    """Read the status until a condition holds."""

    def is_so() -> bool:
        assert party.process.poll() is None, party.output
        try:
            return holds(get_status(address))
        except OSError:
            return False  # not up yet

    wait_until(is_so, 60, lambda: party.output, every=0.05)


def test_a_run_is_scraped_from_start_to_end(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", LongerClicks())
    addresses = watched(workspace)
    seen: dict[RoleName, list[Samples]] = {role: [] for role in ROLES}
    with (
        workspace.start_warm("active", stage="all") as active,
        workspace.start_warm("passive", stage="all") as passive,
    ):
        while active.process.poll() is None or passive.process.poll() is None:
            for role, address in addresses.items():
                if found := scrape(address):
                    seen[role].append(found)
            time.sleep(0.05)
        assert (active.finish(), passive.finish()) == (0, 0)
    for role, scrapes in seen.items():
        steps = [found.get(("florist_training_step", ()), 0.0) for found in scrapes]
        assert steps == sorted(steps)
        assert len(set(steps)) > 5, f"{role} was scraped at too few steps"
        (total_steps,) = {s.get(("florist_training_steps", ()), 0.0) for s in scrapes} - {0.0}
        under_way = [s for s, done in zip(scrapes, steps, strict=True) if 0 < done < total_steps]
        busy = next(s for s in reversed(under_way) if s["florist_rows_per_second", ()] > 0)
        assert busy["florist_stage", (("stage", "train"),)] == 1
        assert busy["florist_peer_up", ()] == busy["florist_ready", ()] == 1
        assert busy["florist_sent_bytes_total", ()] > 10_000
        assert busy["florist_received_bytes_total", ()] > 10_000
        assert 0 < busy["florist_waiting_seconds_total", ()] < busy["florist_uptime_seconds", ()]
        assert 360 < busy["florist_certificate_days_left", ()] < 366
        last = scrapes[-1]
        assert last["florist_training_step", ()] == last["florist_training_steps", ()]
        # The last batch may have few rows, so its loss may be small.
        assert 0 < last["florist_loss", ()] < 1.5
        assert 0.4 < last["florist_auc", ()] < 1
        assert any(name == "florist_audit_auc" for name, _ in last)
        assert last["florist_reconnects_total", ()] == last["florist_failed", ()] == 0
        for found in scrapes:
            for name, labels in found:
                if not name.startswith("process_"):
                    assert {label for label, _ in labels} == ALLOWED[name]


def test_a_lost_peer_and_its_return_are_reported(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair", LongerClicks()).patient()
    address = watched(workspace)["active"]
    with workspace.start_warm("active", stage="all") as active:
        with workspace.start_warm("passive", stage="all") as passive:
            wait_for_status(
                address, lambda now: bool(now["training"] and now["training"]["step"] > 20), active
            )
            assert get(address, "/readyz").code == 200
            passive.signal(signal.SIGKILL)
            wait_for_status(address, lambda now: now["peer"] in ("lost", "awaited"), active)
            assert get(address, "/readyz").code == 503
            assert get(address, "/healthz").code == 200
        with workspace.start_warm("passive", stage="all") as passive:
            wait_for_status(address, lambda now: now["peer"] == "up", active)
            assert get_status(address)["reconnects"] == 1
            assert (active.finish(240), passive.finish(240)) == (0, 0)


def test_florist_health_is_for_supervisors(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    config = str(workspace.config("active"))

    def health(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["health", "--config", config, *options])
        return result.exit_code, result.output

    assert health() == (
        1,
        f"{config}: observability.address is null, so health cannot be checked; set it\n",
    )
    address = watched(workspace)["active"]
    assert health()[0] == 1
    assert health()[1].startswith(f"no answer from {address}")
    with workspace.start("active") as active:
        active.wait_for("listening at")
        assert health() == (0, "ok\n")
        assert health("--ready") == (1, "waiting for the peer\n")
    workspace.config("active").write_text("nonsense")
    assert health()[0] == 1


def test_a_port_in_use_ends_the_run_before_it_starts(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        workspace.configure("active", {"observability.address": f"127.0.0.1:{port}"})
        with workspace.start("active") as active:
            assert active.finish() == 2
    assert f"observability.address: cannot listen at 127.0.0.1:{port}" in active.output
    assert "listening at" not in active.output


# --- nothing reveals who is shared ---

#: Metrics of time, and of traffic, which includes heartbeats.
VARIABLE = r"process_|florist_\w*(seconds|per_second|bytes|days)"


def people(first: int, count: int) -> list[str]:
    return [f"citizen-{number:05d}" for number in range(first, first + count)]


def metrics_of_a_run(directory: Path, tables: dict[RoleName, list[str]]) -> dict[str, Samples]:
    """Return all metrics of both parties after an alignment of these people, except times."""
    workspace = Workspace.create(directory)
    for role, ids in tables.items():
        workspace.table(role).write_text("person\n" + "\n".join(ids) + "\n")
        # Otherwise sizes are random; and no budget covers exact sizes.
        workspace.configure(role, {"agreement.union.privacy": None, "privacy.budget": None})
    addresses = watched(workspace)

    def run(name: RoleName) -> Samples:
        config = load_config(workspace.config(name))
        role = ACTIVE if name == "active" else PASSIVE
        with observing(role, config, NoProgress()) as watch:
            for _ in watch.stages(["align"]):
                run_stage("align", watch.role, config, StageOptions(), watch.progress)
            for path in ("/status.json", "/metrics", "/"):
                assert "citizen-" not in get(addresses[name], path).text
            found = parsed(get(addresses[name], "/metrics").text)
        return {key: value for key, value in found.items() if not re.match(VARIABLE, key[0])}

    with ThreadPoolExecutor(2) as both:
        runs = {name: both.submit(run, name) for name in ROLES}
        return {name: found.result(timeout=60) for name, found in runs.items()}


def test_metrics_do_not_depend_on_who_is_shared(tmp_path: Path) -> None:
    ours = people(0, 200)
    first = metrics_of_a_run(tmp_path / "one", {"active": ours, "passive": people(150, 200)})
    second = metrics_of_a_run(
        tmp_path / "two", {"active": ours, "passive": people(0, 50) + people(1000, 150)}
    )
    assert first == second
    assert first["active"]["florist_rows_total", (("stage", "align"),)] > 1000


def test_a_party_without_an_address_has_no_server(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    config = load_config(workspace.config("active"))
    assert config.observability.address is None
    progress = NoProgress()
    with observing(ACTIVE, config, progress) as watch:
        assert watch.role is ACTIVE
        assert watch.progress is progress
        assert watch.status is None
        assert list(watch.stages(["align", "train"])) == ["align", "train"]


@pytest.mark.parametrize("address", ["9464", "localhost", "127.0.0.1:0", ":9464"])
def test_a_bad_address_is_rejected_with_its_key(tmp_path: Path, address: str) -> None:
    workspace = Workspace.create(tmp_path / "pair")
    workspace.configure("active", {"observability.address": address})
    with workspace.start("active") as active:
        assert active.finish() == 2
    assert "observability.address: must be host:port" in active.output
