"""A run that its network, its hosts or its operators disturb ends as one that nobody disturbed.

Two hosts (see `lab`), real processes, mutual TLS. Everything is compared with an undisturbed run
from the same files: weights to the last bit, the evaluation to the last digit, the union with the
ideal.
"""

from __future__ import annotations

import json
import os
import random
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName

    #: A copy of the files before a stage.
    Fresh = Callable[[str], Workspace]

pytestmark = pytest.mark.faults

#: Kills over all stages; each party is started again at once.
KILLS_PER_STAGE = 10
STAGES = ("align", "train", "evaluate")

#: Seconds that the parties are together in a stage, about.
SPAN = {"align": 3.0, "train": 3.0, "evaluate": 0.6}

#: Seconds that any run here may take.
LONG = 100


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    if reason := unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        yield lab


class MoreClicks(QuickClicks):
    """Enough steps for something to happen meanwhile."""

    def settings(self, role: RoleName) -> dict[str, Any]:
        changes = {"agreement.training.epochs": 6, "agreement.training.checkpoint_every": 10}
        return QuickClicks.settings(self, role) | changes


@dataclass
class Run:
    """Both parties of a stage, in the laboratory, restarted as a supervisor would."""

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
        """Kill it and start it again; False if it had ended before."""
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
            # One that is killed when all is done has nothing left to do.
            done = party.finish(LONG) == 0 or "contains a finished result" in party.output
            assert done, party.output

    def wait_for(self, pattern: str) -> None:
        for party in list(self.parties.values()):
            party.wait_for(pattern, LONG)


@contextmanager
def running(lab: Lab, workspace: Workspace, stage: str) -> Iterator[Run]:
    with ExitStack() as stack:
        run = Run(lab, workspace, stage, stack)
        run.start("active", "passive")
        yield run


def prepare(workspace: Workspace) -> Workspace:
    """At the laboratory's addresses, and patient."""
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
    """Files as they are before each stage, and, under `done`, after all of them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    align = prepare(Workspace.create(folder / "align", SlowIds(60, 60, 25)))
    done = prepare(Workspace.create(folder / "done", MoreClicks()))
    found = {"align": align}
    for stage in STAGES:
        if stage != "align":
            found[stage] = done.copy(folder / stage)
        with running(lab, done, stage) as run:
            run.finish()
    for role in ROLES:  # in another union people would have other stand-ins, and figures
        kept = done.run_directory(role).evaluation_alignment
        shutil.copytree(kept, found["evaluate"].run_directory(role).evaluation_alignment)
    return found | {"done": done}


@pytest.fixture
def fresh(stages: dict[str, Workspace], tmp_path: Path) -> Fresh:
    """A copy of the files before a stage."""
    counter = iter(range(1000))

    def copy(stage: str) -> Workspace:
        return prepare(stages[stage].copy(tmp_path / f"{stage}-{next(counter)}"))

    return copy


def check(workspace: Workspace, stage: str, done: Workspace) -> None:
    """What the stage gave is what it gives undisturbed."""
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


def no_ports_left(lab: Lab) -> None:
    for name in lab.namespaces.values():
        listing = subprocess.run(
            ["ip", "netns", "pids", name], check=True, capture_output=True, text=True
        )
        assert listing.stdout.split() == [], "a process was left behind"


# --- the line ---

TRAINING = r"training: (started|\d+ of)"


def pull_out(lab: Lab) -> None:
    lab.cut()
    time.sleep(14)
    lab.mend()


def swallow(lab: Lab) -> None:
    lab.wire(Quality(loss=1.0))
    time.sleep(14)
    lab.wire(Quality())


def flap(lab: Lab) -> None:
    for _ in range(5):
        lab.cut()
        time.sleep(1.5)
        lab.mend()
        time.sleep(2.5)


@pytest.mark.parametrize("disturb", [pull_out, swallow, flap])
@pytest.mark.parametrize("stage", STAGES)
def test_the_line_is_cut(
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
    no_ports_left(lab)


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
def test_a_bad_line(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
    stage: str,
    quality: Quality,
    rate: str | None,
) -> None:
    workspace = fresh(stage)
    lab.wire(quality)
    lab.rate(rate) if rate else None
    try:
        with running(lab, workspace, stage) as run:
            run.finish()
    finally:
        lab.wire(Quality())
        lab.rate(None) if rate else None
    check(workspace, stage, stages["done"])
    no_ports_left(lab)


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
                run.wait_for("connected to|contains a finished result|result is complete")
                time.sleep(draws.uniform(0.0, SPAN[stage]))
                kills += run.kill(draws.choice(ROLES))
            run.finish()
        check(workspace, stage, stages["done"])
    no_ports_left(lab)
    record_property("kills", kills)


# --- the hosts ---


@contextmanager
def small_disk(workspace: Workspace, role: RoleName) -> Iterator[Path]:
    """The run directory on a file system of its own."""
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
def test_a_full_disk_is_told_and_gone_on_from(
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
        assert party.finish(LONG) == 2, party.output
        assert "No space left" in party.output
        filler.unlink()
        run.parties.pop(other(victim)).finish(LONG)  # told why, it has ended too
        run.start("active", "passive")
        run.finish()
    check(workspace, "train", stages["done"])


@pytest.mark.parametrize("victim", ROLES)
def test_a_run_directory_that_turns_read_only(
    lab: Lab, stages: dict[str, Workspace], fresh: Fresh, victim: RoleName
) -> None:
    workspace = fresh("train")
    checkpoints = workspace.run_directory(victim).checkpoints
    with running(lab, workspace, "train") as run:
        run.wait_for("training: started")
        while not checkpoints.exists():
            time.sleep(0.01)
        if not freeze(checkpoints, frozen=True):
            pytest.skip("this file system cannot be made read-only under a running program")
        try:
            party = run.parties[victim]
            assert party.finish(LONG) == 2, party.output
            assert "cannot be written" in party.output
            run.parties.pop(other(victim)).finish(LONG)
        finally:
            assert freeze(checkpoints, frozen=False)
        run.start("active", "passive")
        run.finish()
    check(workspace, "train", stages["done"])


def freeze(folder: Path, *, frozen: bool) -> bool:
    """Make the folder immutable, or mutable again: not even root may write to it meanwhile."""
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
def test_a_clock_that_is_wrong(
    stages: dict[str, Workspace],
    fresh: Fresh,
    tmp_path: Path,
    minutes: int,
) -> None:
    """Certificates are valid from some minutes before they are made; who is before that is told."""
    if not shutil.which("cc"):
        pytest.skip("a wrong clock needs a C compiler")
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
    with skewed, workspace.start_warm("active", stage="train") as right:
        if minutes < -5:
            assert skewed.finish(LONG) == 2
            assert "Check this machine's clock" in skewed.output
            return
        assert skewed.finish(LONG) == 0, skewed.output
        assert right.finish(LONG) == 0
    day = datetime.now(UTC) + timedelta(minutes=minutes)
    assert day.strftime("%Y-%m-%d") in skewed.output  # it did believe that time
    check(workspace, "train", stages["done"])


def test_a_certificate_that_expires_meanwhile(
    lab: Lab,
    stages: dict[str, Workspace],
    fresh: Fresh,
) -> None:
    """The connection that stands goes on; for a new one the certificate must be a new one."""
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
        assert passive.finish(LONG) == 2, passive.output
        assert "expired" in passive.output
        renew(NAMES.passive, datetime.now(UTC))
        run.start("passive")
        run.finish()
    check(workspace, "train", stages["done"])
