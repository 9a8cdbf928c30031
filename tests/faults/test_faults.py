"""A run with faults of the network, the hosts or the processes has the result of a run without.

Two hosts (see `lab`), real processes, mutual TLS. Results are compared with an undisturbed run from
the same files: weights bit for bit, the evaluation to the last digit, and the union with the
expected one.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from florist.common.settings.loader import load_config
from florist.common.transport.certificates import create_authority, issue
from tests.faults.lab import ADDRESSES, Lab, Quality, enter, unavailable
from tests.support.parties import (
    NAMES,
    ROLES,
    Party,
    QuickClicks,
    SlowIds,
    Workspace,
    other,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName

    #: A copy of the files before a stage.
    Fresh = Callable[[str], Workspace]

pytestmark = pytest.mark.faults

#: Kills in each stage; a killed party is restarted at once.
KILLS_PER_STAGE = 10
STAGES = ("align", "train", "evaluate")

#: Approximate duration of each stage in seconds.
SPAN = {"align": 3.0, "train": 3.0, "evaluate": 0.6}

#: Maximum duration of a run in seconds.
LIMIT = 100


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    if reason := unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        yield lab


class MoreClicks(QuickClicks):
    """A sample with enough steps for faults to happen during training."""

    def settings(self, role: RoleName) -> dict[str, Any]:
        changes = {"agreement.training.epochs": 6, "agreement.training.checkpoint_every": 10}
        return QuickClicks.settings(self, role) | changes


@dataclass
class Run:
    """Both parties of a stage in the lab, restarted as by a supervisor."""

    lab: Lab
    workspace: Workspace
    stage: str
    stack: ExitStack
    parties: dict[RoleName, Party] = field(default_factory=dict)

    def start(self, *roles: RoleName) -> None:
        for role in roles:
            first = partial(enter, self.lab.namespaces[role])
            party = self.workspace.start_warm(role, stage=self.stage, first=first)
            self.parties[role] = self.stack.enter_context(party)

    def kill(self, role: RoleName) -> bool:
        """Kill a party and restart it; return False if it had ended already."""
        party = self.parties[role]
        if party.process.poll() is not None:
            return False
        party.signal(signal.SIGKILL)
        party.process.wait(10)
        self.start(role)
        return True

    def finish(self) -> None:
        for role in ROLES:
            party = self.parties[role]
            # A party that was killed after its stage was complete has nothing left to do.
            done = party.finish(LIMIT) == 0 or "contains a finished result" in party.output
            assert done, party.output

    def wait_for(self, pattern: str) -> None:
        for party in list(self.parties.values()):
            party.wait_for(pattern, LIMIT)

    def wait_until_connected(self) -> None:
        """Wait until each party is connected, or has ended because its stage is complete.

        A party that was killed after both results were complete may learn from its peer that
        nothing is left to do. It then ends without another log line.
        """
        pattern = "connected to|contains a finished result|result is complete"

        def is_met(party: Party) -> bool:
            return party.process.poll() == 0 or re.search(pattern, party.output) is not None

        for party in list(self.parties.values()):
            wait_until(partial(is_met, party), LIMIT, partial("{0.output}".format, party))


@contextmanager
def running(lab: Lab, workspace: Workspace, stage: str) -> Iterator[Run]:
    with ExitStack() as stack:
        run = Run(lab, workspace, stage, stack)
        run.start("active", "passive")
        yield run


def prepare(workspace: Workspace) -> Workspace:
    """Set the addresses of the lab and long timeouts."""
    for role in ROLES:
        address = f"{ADDRESSES['active']}:{7100 + random.randrange(800)}"
        if role == "passive":
            address = load_config(workspace.config("active")).network.address
        workspace.configure(
            role, {"network.address": address, "timeouts.connect": 20.0, "timeouts.outage": 60.0}
        )
    return workspace


@pytest.fixture(scope="module")
def stages(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    """Return the files before each stage and, under `done`, after all of them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    align = prepare(Workspace.create(folder / "align", SlowIds(60, 60, 25)))
    done = prepare(Workspace.create(folder / "done", MoreClicks()))
    found = {"align": align}
    for stage in STAGES:
        if stage != "align":
            found[stage] = done.copy(folder / stage)
        with running(lab, done, stage) as run:
            run.finish()
    for role in ROLES:  # another union would have other stand-ins and figures
        kept = done.run_directory(role).evaluation_alignment
        shutil.copytree(kept, found["evaluate"].run_directory(role).evaluation_alignment)
    return found | {"done": done}


@pytest.fixture
def fresh(stages: dict[str, Workspace], tmp_path: Path) -> Fresh:
    """Return a function that copies the files before a stage."""
    counter = iter(range(1000))

    def copy(stage: str) -> Workspace:
        return prepare(stages[stage].copy(tmp_path / f"{stage}-{next(counter)}"))

    return copy


def check(workspace: Workspace, stage: str, done: Workspace) -> None:
    """Check that the result of the stage equals the undisturbed one."""
    if stage == "align":
        workspace.assert_aligned()
        return
    for role in ROLES:
        ours, theirs = workspace.run_directory(role), done.run_directory(role)
        assert not ours.pending(stage).exists()  # type: ignore[arg-type]
        if stage == "train":
            found = load_file(ours.training / "model.safetensors")
            expected = load_file(theirs.training / "model.safetensors")
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in found)
            assert ours.load_history()["losses"] == theirs.load_history()["losses"]
        elif role == "active":
            figures = [
                json.loads((runs.evaluation / "evaluation.json").read_text())["estimates"]
                for runs in (ours, theirs)
            ]
            assert figures[0] == figures[1]


def check_no_process_is_left(lab: Lab) -> None:
    for name in lab.namespaces.values():
        listing = subprocess.run(
            ["ip", "netns", "pids", name], check=True, capture_output=True, text=True
        )
        assert listing.stdout.split() == [], "a process was left behind"


# --- the network ---

TRAINING = r"training: (started|\d+ of)"


def unplug(lab: Lab) -> None:
    lab.cut()
    time.sleep(14)
    lab.restore()


def lose_everything(lab: Lab) -> None:
    lab.set_quality(Quality(loss=1.0))
    time.sleep(14)
    lab.set_quality(Quality())


def flap(lab: Lab) -> None:
    for _ in range(5):
        lab.cut()
        time.sleep(1.5)
        lab.restore()
        time.sleep(2.5)


@pytest.mark.parametrize("disturb", [unplug, lose_everything, flap])
@pytest.mark.parametrize("stage", STAGES)
def test_the_connection_is_cut(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
    stage: str,
    disturb: Callable[[Lab], None],
) -> None:
    workspace = fresh(stage)
    with running(lab, workspace, stage) as run:
        run.wait_for("connected to")
        disturb(lab)
        run.finish()
    check(workspace, stage, stages["done"])
    check_no_process_is_left(lab)


@pytest.mark.parametrize(
    ("quality", "rate"),
    [
        pytest.param(Quality(loss=0.01), None, id="1% loss"),
        pytest.param(Quality(loss=0.05), None, id="5% loss"),
        pytest.param(Quality(delay=0.05), None, id="50 ms"),
        pytest.param(Quality(), "10mbit", id="10 Mbit/s"),
    ],
)
@pytest.mark.parametrize("stage", STAGES)
def test_a_bad_network(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
    stage: str,
    quality: Quality,
    rate: str | None,
) -> None:
    workspace = fresh(stage)
    lab.set_quality(quality)
    lab.set_rate(rate) if rate else None
    try:
        with running(lab, workspace, stage) as run:
            run.finish()
    finally:
        lab.set_quality(Quality())
        lab.set_rate(None) if rate else None
    check(workspace, stage, stages["done"])
    check_no_process_is_left(lab)


# --- the parties ---


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_random_moments(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
    stage: str,
    record_property: Callable[[str, object], None],
) -> None:
    draws, kills = random.Random(stage), 0
    while kills < KILLS_PER_STAGE:
        workspace = fresh(stage)
        with running(lab, workspace, stage) as run:
            for _ in range(4):
                run.wait_until_connected()
                time.sleep(draws.uniform(0.0, SPAN[stage]))
                kills += run.kill(draws.choice(ROLES))
            run.finish()
        check(workspace, stage, stages["done"])
    check_no_process_is_left(lab)
    record_property("kills", kills)


# --- the hosts ---


@contextmanager
def small_disk(workspace: Workspace, role: RoleName) -> Iterator[Path]:
    """Put the run directory on a small file system."""
    path = workspace.run_directory(role).path
    kept = path.with_name(f"{path.name}-kept")
    path.rename(kept) if path.exists() else None
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)], check=True)
    try:
        if kept.exists():
            shutil.copytree(kept, path, dirs_exist_ok=True)
        yield path
    finally:
        results = path.with_name(f"{path.name}-results")
        shutil.copytree(path, results)
        subprocess.run(["umount", str(path)], check=True)
        path.rmdir()
        results.rename(path)


@pytest.mark.parametrize("victim", ROLES)
def test_a_full_disk_is_reported_and_the_run_resumes(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
    victim: RoleName,
) -> None:
    workspace = fresh("train")
    with small_disk(workspace, victim) as disk, running(lab, workspace, "train") as run:
        run.wait_for("connected to")
        filler = disk / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass
        party = run.parties[victim]
        assert party.finish(LIMIT) == 2, party.output
        assert "No space left" in party.output
        filler.unlink()
        run.parties.pop(other(victim)).finish(LIMIT)  # it was informed and has ended too
        run.start("active", "passive")
        run.finish()
    check(workspace, "train", stages["done"])


@pytest.mark.parametrize("victim", ROLES)
def test_a_run_directory_that_becomes_read_only(
    lab: Lab, stages: dict[str, Workspace], fresh: Fresh, victim: RoleName
) -> None:
    workspace = fresh("train")
    checkpoints = workspace.run_directory(victim).checkpoints
    with running(lab, workspace, "train") as run:
        run.wait_for("training: started")
        wait_until(checkpoints.exists, within=LIMIT)
        if not freeze(checkpoints, frozen=True):
            pytest.skip("this file system cannot be made read-only under a running program")
        try:
            party = run.parties[victim]
            assert party.finish(LIMIT) == 2, party.output
            assert "cannot be written" in party.output
            run.parties.pop(other(victim)).finish(LIMIT)
        finally:
            assert freeze(checkpoints, frozen=False)
        run.start("active", "passive")
        run.finish()
    check(workspace, "train", stages["done"])


def freeze(folder: Path, *, frozen: bool) -> bool:
    """Make the folder immutable, even for root, or mutable again; return whether it worked."""
    command = ["chattr", "+i" if frozen else "-i", str(folder)]
    return (
        shutil.which("chattr") is not None
        and not subprocess.run(command, check=False, capture_output=True).returncode
    )


SKEWED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long skew = SECONDS;
int clock_gettime(clockid_t id, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int r = real(id, t);
  if (!r && id == CLOCK_REALTIME) t->tv_sec += skew;
  return r;
}
int gettimeofday(struct timeval *t, void *z) {
  struct timespec s; clock_gettime(CLOCK_REALTIME, &s);
  t->tv_sec = s.tv_sec; t->tv_usec = s.tv_nsec / 1000; return 0;
}
time_t time(time_t *t) {
  struct timespec s; clock_gettime(CLOCK_REALTIME, &s);
  if (t) *t = s.tv_sec; return s.tv_sec;
}
"""


@pytest.mark.parametrize("minutes", [-20 * 60, -3, 20 * 60])
def test_a_wrong_clock(
    stages: dict[str, Workspace],
    fresh: Fresh,
    tmp_path: Path,
    minutes: int,
) -> None:
    """Certificates are valid from a few minutes before creation; an earlier clock is reported."""
    if not shutil.which("cc"):
        pytest.skip("this test needs a C compiler")
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(SKEWED_CLOCK.replace("SECONDS", str(minutes * 60)))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    workspace = fresh("train")
    port = load_config(workspace.config("active")).network.address.rpartition(":")[2]
    for role in ROLES:
        workspace.configure(role, {"network.address": f"127.0.0.1:{port}"})
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = str(library)
    try:
        skewed = workspace.start("passive", stage="train")
    finally:
        os.environ.pop("LD_PRELOAD")
        if before is not None:
            os.environ["LD_PRELOAD"] = before
    with skewed, workspace.start_warm("active", stage="train") as correct:
        if minutes < -5:
            assert skewed.finish(LIMIT) == 2
            assert "this machine's clock, which shows" in skewed.output
            return
        assert skewed.finish(LIMIT) == 0, skewed.output
        assert correct.finish(LIMIT) == 0
    day = datetime.now(UTC) + timedelta(minutes=minutes)
    assert day.strftime("%Y-%m-%d") in skewed.output  # it used the wrong time
    check(workspace, "train", stages["done"])


def test_a_certificate_that_expires_during_a_run(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
) -> None:
    """An open connection stays; a new connection needs a new certificate."""
    workspace, lasts = fresh("train"), 25
    folder = workspace.directory / "certificates"
    earlier = datetime.now(UTC) - timedelta(days=3)
    authority = create_authority(folder, "test", 30, force=True, now=earlier)

    def renew(name: str, made_at: datetime) -> None:
        issue(authority, name, [*ADDRESSES.values()], folder, 1, force=True, now=made_at)

    renew(NAMES.active, datetime.now(UTC))
    renew(NAMES.passive, datetime.now(UTC) - timedelta(days=1) + timedelta(seconds=lasts))
    expiry = time.monotonic() + lasts
    with running(lab, workspace, "train") as run:
        run.wait_for("connected to")
        active, passive = run.parties["active"], run.parties["passive"]
        active.signal(signal.SIGSTOP)
        time.sleep(max(0.0, expiry - time.monotonic()) + 1)
        active.signal(signal.SIGCONT)
        assert passive.finish(LIMIT) == 2, passive.output
        assert "expired" in passive.output
        renew(NAMES.passive, datetime.now(UTC))
        run.start("passive")
        run.finish()
    check(workspace, "train", stages["done"])
