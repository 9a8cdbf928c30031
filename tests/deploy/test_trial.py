"""The trial with real images and containers."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.deploy.trial import NAMES, OWNER, Trial, own
from tests.support.parties import ROLES, QuickClicks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.experiments.sample_data import Sample

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2400)]


#: Run in a container: kills the party, not the process that supervises it.
KILL_THE_PARTY = """
import os, pathlib, signal
for process in pathlib.Path("/proc").glob("[0-9]*"):
    arguments = (process / "cmdline").read_text().split(chr(0))
    if len(arguments) > 1 and arguments[1].endswith("/florist-party"):
        os.kill(int(process.name), signal.SIGKILL)
        break
else:
    raise SystemExit("no party is running")
"""


@dataclass(frozen=True)
class LongerClicks(QuickClicks):
    """A run with enough steps to be stopped in between."""

    people: int = 6000

    def settings(self, role: RoleName) -> dict[str, Any]:
        return QuickClicks.settings(self, role) | {"agreement.training.epochs": 6}


def test_a_trial_from_start_to_results(
    make_trial: Callable[[Sample], Trial], tmp_path: Path
) -> None:
    sample = QuickClicks()
    trial = make_trial(sample)
    trial.up("active")
    _check_foreign_certificate_is_refused(trial, tmp_path / "foreign")
    _check_health(trial, "active")
    _check_isolation(trial, "active")
    trial.up()
    assert [trial.finish(role) for role in ROLES] == [0, 0]

    summaries = [trial.runs(role).load_alignment().summary for role in ROLES]
    _, who = sample.data()
    for summary, rows in zip(summaries, (who.active, who.passive), strict=True):
        assert summary.rows == len(rows)
        people = len({*who.active.tolist(), *who.passive.tolist()})
        assert summary.union_size >= people
    assert summaries[0].union_sha256 == summaries[1].union_sha256
    for role in ROLES:
        runs = trial.runs(role)
        assert len(runs.load_history()["epochs"]) == 2
        assert runs.evaluation.is_dir()
        assert runs.evaluation.stat().st_uid == OWNER

    for role in ROLES:
        _check_no_secret_is_shown(trial, role)

    trial.up()
    assert [trial.finish(role) for role in ROLES] == [0, 0], "complete stages do not run again"


def test_a_trial_resumes_after_a_kill_and_a_stop(make_trial: Callable[[Sample], Trial]) -> None:
    trial = make_trial(LongerClicks())
    trial.up("passive")
    _check_health(trial, "passive")
    _check_isolation(trial, "passive")

    trial.up()
    _await_checkpoint(trial)
    code, printed = trial.execute("passive", "python", "-c", KILL_THE_PARTY)
    assert code == 0, printed
    _await_restart(trial)
    _await_checkpoint(trial)

    start = time.monotonic()
    code, printed = trial.compose("stop")
    assert code == 0, printed
    assert time.monotonic() - start < 15
    assert [trial.finish(role) for role in ROLES] == [130, 130]
    assert all(trial.checkpoints(role) for role in ROLES)

    trial.up()
    assert [trial.finish(role) for role in ROLES] == [0, 0]
    histories = [trial.runs(role).load_history() for role in ROLES]
    assert [len(history["epochs"]) for history in histories] == [6, 6]


def test_init_in_a_container_writes_the_files_that_the_trial_mounts(
    make_trial: Callable[[Sample], Trial], tmp_path: Path
) -> None:
    trial = make_trial(QuickClicks())
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    own(fresh)
    code, printed = trial.compose("run", "--rm", "init", folder=fresh)
    assert code == 0, printed
    assert _files(fresh) == _files(trial.folder)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _check_foreign_certificate_is_refused(trial: Trial, folder: Path) -> None:
    """Check that the active party accepts nobody but its peer while it waits."""
    foreign = trial.with_foreign_certificate(folder)
    party = ("florist-party", "--role", "passive", "--config", "/florist/party.yml")
    code, printed = trial.compose("run", "--rm", "--no-deps", "passive", *party, folder=foreign)
    assert code == 3, printed
    assert "certificate" in printed
    assert trial.inspect("active")["State"]["Running"]


def _await_checkpoint(trial: Trial) -> None:
    """Wait until both parties have a new checkpoint."""
    seen = {role: set(trial.checkpoints(role)) for role in ROLES}
    _await(lambda: all(set(trial.checkpoints(role)) - seen[role] for role in ROLES))


def _await_restart(trial: Trial) -> None:
    _await(lambda: "starting it again in 1 s (restart 1 of 20)" in trial.logs())


def _await(condition: Callable[[], bool], timeout: float = 180) -> None:
    wait_until(condition, timeout, every=0.05)


def _check_health(trial: Trial, role: RoleName) -> None:
    """Check that the health command and the metrics work."""
    command = ("florist", "health", "--config", "/florist/party.yml")
    _await(lambda: trial.execute(role, *command)[0] == 0)
    address = f"http://127.0.0.1:{trial.status_ports[role]}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert b"florist_info" in answer.read()


def _check_isolation(trial: Trial, role: RoleName) -> None:
    """Check the user, the capabilities, what can be written, and that no peer's file is visible."""
    script = (
        "import os, pathlib, shutil; print(os.getuid()); print(open('/proc/1/status').read());"
        "print(shutil.which('gcc'), shutil.which('make'));"
        "print(*sorted(str(p) for p in pathlib.Path('/florist').rglob('*')))"
    )
    code, printed = trial.execute(role, "python", "-c", script)
    assert code == 0, printed
    lines = printed.splitlines()
    assert lines[0] == str(OWNER)
    for capabilities in ("CapEff", "CapPrm", "CapBnd"):
        assert f"{capabilities}:\t{0:016x}" in lines
    assert "NoNewPrivs:\t1" in lines
    assert lines[-2] == "None None"
    assert NAMES[role] in lines[-1]
    assert NAMES["passive" if role == "active" else "active"] not in lines[-1]
    assert "authority.key" not in lines[-1]
    for path in ("/x", "/florist/x", "/opt/florist/x", f"/florist/data/{NAMES[role]}.csv"):
        assert trial.execute(role, "sh", "-c", f"echo >> {path}")[0] != 0, path


def _check_no_secret_is_shown(trial: Trial, role: RoleName) -> None:
    """Check that the private key is neither in the engine's output nor in the log."""
    key = (trial.folder / "certificates" / f"{NAMES[role]}.key").read_text()
    secret = "".join(key.splitlines()[1:-1])
    shown = json.dumps(trial.inspect(role)) + trial.logs()
    shown += trial.engine.docker("image", "inspect", trial.image)
    shown += trial.engine.docker("history", "--no-trunc", trial.image)
    for part in (secret[:40], secret[-40:], base64.b64decode(secret).hex()[:40], "PRIVATE KEY"):
        assert part not in shown
