"""The end of a run can be observed: on the status page, by Prometheus, and in the run directory."""

from __future__ import annotations

import json
import re
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from florist.active_party.role import ACTIVE
from florist.common.core.clock import SystemClock
from florist.common.core.errors import ConfigurationError, PeerLost
from florist.common.core.ports import free_port
from florist.common.core.progress import NoProgress
from florist.common.settings.loader import load_config
from florist.common.stages.observe import observing
from tests.support.observability import get, get_status, parsed
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from threading import Event

    from florist.common.settings.party_config import PartyConfig

LINGER = 12.5


class CuriousClock(SystemClock):
    """Does not wait, but looks at the status page instead."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self.waits: list[float] = []

    def wait(self, event: Event, seconds: float) -> bool:
        self._look()
        self.waits.append(seconds)
        return event.is_set()


@pytest.fixture
def config(tmp_path: Path) -> PartyConfig:
    workspace = Workspace.create(tmp_path / "pair")
    workspace.configure(
        "active",
        {
            "observability.address": f"127.0.0.1:{free_port()}",
            "observability.linger": LINGER,
        },
    )
    return load_config(workspace.config("active"))


def observe(
    config: PartyConfig, error: BaseException | None
) -> tuple[CuriousClock, list[dict[str, Any]]]:
    """Observe a run that ends with this error, and return what was seen after its end."""
    address = str(config.observability.address)
    seen = []

    def look() -> None:
        failed = parsed(get(address, "/metrics").text)["florist_failed", ()]
        health = get(address, "/healthz").code
        seen.append({**get_status(address), "failed": failed, "health": health})

    clock = CuriousClock(look)
    reported: list[BaseException] = []

    def run() -> None:
        with observing(
            ACTIVE, config, NoProgress(), on_failure=reported.append, clock=clock
        ) as watch:
            for stage in watch.stages(["align", "train"]):
                if error is not None and stage == "train":
                    raise error
                watch.completed(stage, f"{stage} is fine")

    if error is None:
        run()
    else:
        with pytest.raises(type(error)):
            run()
    assert reported == ([] if error is None else [error])
    with suppress(OSError):
        get(address, "/healthz")
        pytest.fail("the server is still there")
    return clock, seen


def final_status(config: PartyConfig) -> dict[str, object]:
    text = (config.run_directory / "status.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="final-status">(.*?)</script>', text)
    assert found
    facts: dict[str, object] = json.loads(found[1])
    return facts


def test_a_failure_is_seen_before_the_page_goes(config: PartyConfig) -> None:
    clock, seen = observe(config, PeerLost("telco is <gone>"))
    (now,) = seen
    assert clock.waits == [LINGER]
    assert (now["state"], now["failed"], now["health"]) == ("failed", 1, 503)
    assert now["reason"] == "telco is <gone>"
    assert now["advice"] == PeerLost.advice
    assert [stage["state"] for stage in now["stages"]] == ["done", "failed"]
    saved = final_status(config)
    assert (saved["state"], saved["reason"]) == ("failed", "telco is <gone>")
    assert stat.S_IMODE((config.run_directory / "status.html").stat().st_mode) == 0o600


def test_a_result_is_seen_before_the_page_goes(config: PartyConfig) -> None:
    clock, seen = observe(config, None)
    (now,) = seen
    assert clock.waits == [LINGER]
    assert (now["state"], now["failed"], now["health"]) == ("finished", 0, 200)
    assert [stage["result"] for stage in now["stages"]] == ["align is fine", "train is fine"]
    assert final_status(config)["state"] == "finished"


def test_the_operator_does_not_wait(config: PartyConfig) -> None:
    clock, seen = observe(config, KeyboardInterrupt())
    assert (clock.waits, seen) == ([], [])
    assert final_status(config)["state"] == "stopped"


def test_an_unexpected_error_shows_no_values(config: PartyConfig) -> None:
    _, (now,) = observe(config, KeyError("citizen-00017"))
    assert now["reason"] == "unexpected KeyError"
    assert "citizen" not in (config.run_directory / "status.html").read_text()


def test_a_run_without_a_directory_leaves_no_page(config: PartyConfig) -> None:
    shutil.rmtree(config.run_directory)
    observe(config, ConfigurationError("data.train: missing"))
    assert not config.run_directory.exists()
