"""Ctrl-C, SIGTERM and kills of every command, at several moments: exit codes, output, processes.

`test_training` and `test_processes` stop parties that train and serve.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import yaml

from florist.common.core.ports import free_port
from tests.support.parties import Workspace
from tests.support.waiting import eventually, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What no command may print, whenever it is stopped.
CRASHES = ("Traceback", "terminate called", "Exception ignored", "KeyboardInterrupt", "Aborted")

GRID = {
    "data": {"generated": {"people": 600}, "split": {"test": 0.2, "validation": 0.2}},
    "methods": ["default"],
    "ratios": [0.5],
    "seeds": list(range(200)),
    "batch_size": [128],
    "model": {"hidden": [8]},
}


@dataclass(frozen=True)
class Command:
    """A command in a process group and session of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def loads(self, library: str) -> bool:
        """Whether it has begun to load a native library."""
        try:
            maps = Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        except OSError:  # it has ended
            return False
        return library in maps

    def left(self) -> list[psutil.Process]:
        """The processes of its session that are alive."""

        def belongs(each: psutil.Process) -> bool:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                return (
                    os.getsid(each.pid) == self.process.pid
                    and each.status() != psutil.STATUS_ZOMBIE
                )
            return False

        return [each for each in psutil.process_iter() if belongs(each)]


@contextmanager
def running(arguments: list[str], folder: Path) -> Iterator[Command]:
    log = folder / "output.log"
    entry = "florist_party" if arguments[0] == "--role" else "florist"
    program = f"from florist.cli.entry import {entry}; {entry}()"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, *arguments],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
    command = Command(process, log)
    try:
        yield command
    finally:
        for each in command.left():
            each.kill()
        process.wait()


def loads(library: str) -> Callable[[Command], bool]:
    return lambda command: command.loads(library)


def says(text: str) -> Callable[[Command], bool]:
    return lambda command: text in command.output


def has_processes(number: int) -> Callable[[Command], bool]:
    """The command and those that it started."""
    return lambda command: len(command.left()) >= number


def has_results(command: Command) -> bool:
    """Whether a simulation has finished its first trial."""
    return any(command.log.parent.glob("grid.results/trials/*.json"))


PARTY = "--role active --stage align --config {trial}/active.yml"
PREDICT = "predict --config {trained}/passive.yml --input {input} --output x.parquet"
SIMULATE = "simulate --config {grid} --jobs 2"

#: Command, name and condition of the moment. `{trial}` is a folder of `florist init`, `{trained}`
#: one after training, `{grid}` a grid of simulations.
MOMENTS: list[tuple[str, str, Callable[[Command], bool]]] = [
    (PARTY, "importing", loads("umath")),
    (PARTY, "waiting", says("has not connected")),
    ("preflight --config {trial}/passive.yml", "importing", loads("libarrow")),
    ("inspect --config {trial}/passive.yml", "importing", loads("libarrow")),
    (PREDICT, "importing", loads("libtorch_cpu")),
    (PREDICT, "waiting", says("waiting")),
    (SIMULATE, "starting workers", has_processes(3)),
    (SIMULATE, "in trials", has_results),
    ("experiments paper --jobs 2", "starting workers", has_processes(3)),
    ("demo", "starting parties", has_processes(3)),
    ("demo", "running", says("connected to")),
]


def cases() -> Iterator[object]:
    """Every moment with each signal; the second one of each moment is slow."""
    for row, (text, name, moment) in enumerate(MOMENTS):
        for number in (signal.SIGINT, signal.SIGTERM):
            is_second = (row % 2 == 0) == (number == signal.SIGTERM)
            yield pytest.param(
                text,
                moment,
                number,
                id=f"{text.split(' ')[0].strip('-')}, {name}, {number.name}",
                marks=[pytest.mark.slow] if is_second else [],
            )


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Workspace.create(tmp_path_factory.mktemp("trial") / "pair").directory


@pytest.fixture
def arguments(plain: Workspace, trial: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    """Fill in the folders; the address of the trained party is one at which nobody listens."""
    grid = tmp_path / "grid.yml"
    grid.write_text(yaml.safe_dump(GRID))
    trained = plain.copy(tmp_path / "trained")
    trained.configure("passive", {"network.address": f"127.0.0.1:{free_port()}"})
    names = {"trial": trial, "trained": trained.directory, "grid": grid}
    names["input"] = plain.table("passive")
    return lambda text: text.format(**names).split()


def wait_for(command: Command, moment: Callable[[Command], bool]) -> None:
    def is_there() -> bool:
        assert command.process.poll() is None, command.output
        return moment(command)

    wait_until(is_there, within=120, message=lambda: command.output)


def check_end(command: Command) -> None:
    """Check the exit code and that nothing else is left or printed."""
    assert command.process.wait(timeout=60) == 130, command.output
    assert not [word for word in CRASHES if word in command.output], command.output
    assert eventually(lambda: not command.left(), within=30), command.left()


@pytest.mark.parametrize(("text", "moment", "number"), list(cases()))
def test_a_command_that_is_stopped_ends_quietly(
    arguments: Callable[[str], list[str]],
    tmp_path: Path,
    text: str,
    moment: Callable[[Command], bool],
    number: signal.Signals,
) -> None:
    """Ctrl-C reaches all processes of a terminal, SIGTERM only the one that it is sent to."""
    with running(arguments(text), tmp_path) as command:
        wait_for(command, moment)
        if number == signal.SIGINT:
            os.killpg(command.process.pid, number)
        else:
            command.process.send_signal(number)
        check_end(command)


@pytest.mark.parametrize("text", ["demo", SIMULATE])
def test_a_command_that_is_killed_leaves_no_process(
    arguments: Callable[[str], list[str]], tmp_path: Path, text: str
) -> None:
    with running(arguments(text), tmp_path) as command:
        wait_for(command, has_processes(3))
        command.process.kill()
        assert eventually(lambda: not command.left(), within=60), command.left()
