"""Runs both parties of a trial as two processes on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING

from florist.cli.init import Names, write_first_files
from florist.cli.parent_process import PARENT
from florist.common.core.errors import FloristError
from florist.common.core.interrupts import uninterrupted
from florist.common.core.ports import free_port
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.common.training.history import History
from florist.experiments.two_parties import RunFigures

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.experiments.sample_data import Sample

#: Seconds after which a stage counts as stuck.
TIME_LIMIT = 4 * 3600
#: Seconds in which a party ends by itself after its peer has failed.
GRACE = 5

STAGES = ("align", "train")
NAMES = Names(active="bank", passive="partner")
_ROLES: tuple[RoleName, RoleName] = ("active", "passive")


class PartiesFailed(FloristError):  # noqa: N818 - it reads as what happened
    """A process of a party failed or did not end."""

    exit_code = 1
    origin = "simulation"
    advice = "See the logs of both parties in the folder of the run."


def party_command(role: str, directory: Path, stage: str) -> list[str]:
    """Return the command that runs a stage of a party whose configuration is in `directory`."""
    # -P: never import from the working directory, which may have a torch.py of its own.
    command = [sys.executable, "-P", "-m", "florist.cli.entry", "--role", role, "--stage", stage]
    return [*command, "--config", str(directory / f"{role}.yml"), "--log-format", "text"]


def party_environment() -> dict[str, str]:
    """Return the environment of a party that stops when this process ends, however it ends."""
    return {**os.environ, PARENT: str(os.getpid())}


def run_both_parties(tables: Sample, directory: Path) -> RunFigures:
    """Align and train with two processes over mutual TLS; return the last test metrics.

    Args:
        tables: the tables of both parties, with a test table.
        directory: for the files of both parties. Anything in it is deleted before the run and, if
            the run succeeds, after it.

    Raises:
        PartiesFailed: names the party and the end of its log.
    """
    shutil.rmtree(directory, ignore_errors=True)
    write_first_files(directory, NAMES, f"127.0.0.1:{free_port()}", tables)
    seconds = {stage: run_stage_of_both(directory, stage) for stage in STAGES}
    run = RunDirectory(load_config(directory / "active.yml").run_directory)
    last = History.from_json(run.load_history()).epochs[-1]
    assert last.auc is not None
    assert last.ace is not None
    shutil.rmtree(directory)
    return RunFigures(last.auc, last.ace, seconds)


def run_stage_of_both(directory: Path, stage: str) -> float:
    """Run one stage of both parties; return the seconds that it took."""
    started = time.monotonic()
    with ThreadPoolExecutor(len(_ROLES)) as waiting, ExitStack() as stack:
        parties = {role: _start(role, directory, stage, stack) for role in _ROLES}
        ends = {waiting.submit(party.wait) for party in parties.values()}
        done, others = wait(ends, TIME_LIMIT, FIRST_COMPLETED)
        has_failed = not done or any(end.result() for end in done)
        _, stuck = wait(others, GRACE if has_failed else TIME_LIMIT)
        codes = {role: party.poll() for role, party in parties.items()}
    if stuck or any(codes.values()):
        failed = [role for role, code in codes.items() if code is None or code]
        raise PartiesFailed(
            "; ".join(f"the {role} party: {_end_of(_log(directory, role))}" for role in failed)
        )
    return time.monotonic() - started


def _start(
    role: RoleName, directory: Path, stage: str, stack: ExitStack
) -> subprocess.Popen[bytes]:
    """Start one party, which never outlives the block; its log is appended to a file."""
    log = stack.enter_context(_log(directory, role).open("ab"))
    with uninterrupted():
        party = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
            party_command(role, directory, stage),
            stdout=log,
            stderr=log,
            env=party_environment(),
            process_group=0,  # Ctrl-C is for this process, which ends the party
        )
        stack.callback(party.wait)
        stack.callback(party.kill)
    return party


def _log(directory: Path, role: RoleName) -> Path:
    return directory / f"{role}.log"


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if " ERROR " in line]
    return (errors or lines or ["no log"])[0 if errors else -1]
