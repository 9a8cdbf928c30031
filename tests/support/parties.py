"""Real party processes with their files, for tests over localhost."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Self

import yaml

from florist.cli.init import Names, write_first_files
from florist.cli.party import main
from florist.common.core.ports import free_port
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.experiments.sample_data import ANY_OVERLAP, ClickSample, IdSample
from tests.support.ideal_union import is_ideal
from tests.support.tables import read_ids
from tests.support.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.session.alignment_result import Alignment
    from florist.common.session.union_sizes import UnionSizes
    from florist.experiments.sample_data import Sample

ROLES: tuple[RoleName, RoleName] = ("active", "passive")


def other(role: RoleName) -> RoleName:
    """The peer's role."""
    return "passive" if role == "active" else "active"


NAMES = Names(active="bank", passive="telco")
SMALL = IdSample(active=300, passive=400, shared=150)


class SlowIds(IdSample):
    """IDs in the slow group: each step takes a second, so that it can be hit in its middle."""

    def settings(self, role: RoleName) -> dict[str, object]:
        return IdSample.settings(self, role) | {"agreement.group": "modp2048"}


@dataclass(frozen=True)
class QuickClicks(ClickSample):
    """Few people, small models, fixed seeds: training takes a second and can be repeated."""

    people: int = 1500

    def settings(self, role: RoleName) -> dict[str, object]:
        return ClickSample.settings(self, role) | {
            **ANY_OVERLAP,
            "timeouts.connect": 60.0,
            "optimiser.learning_rate": 2e-3,
            "model.hidden": [16, 8],
            "training.seed": 1 if role == "active" else 2,
            "agreement.training.epochs": 2,
            "agreement.training.batch_size": 32,
            "agreement.training.micro_batch": 16,
            "agreement.training.cut_width": 8,
            "agreement.training.checkpoint_every": 3,
            # Little padding, so that small tables have enough rows to stand in for it.
            "agreement.union.privacy.epsilon": 10.0,
            "agreement.union.privacy.delta": 1e-3,
            "agreement.union.planted_pairs": 3,
            # Tests repeat their unions, also on tables that they have changed a little.
            "privacy.budget": None,
            "privacy.minimum_change": 0,
        }


@dataclass(frozen=True)
class AlignedView:
    """What an alignment says that a union gave."""

    rank_of_own: npt.NDArray[np.int64]
    digest: bytes
    sizes: UnionSizes


@dataclass
class Workspace:
    """The files of two parties that can meet."""

    directory: Path

    @classmethod
    def create(cls, directory: Path, sample: Sample = SMALL) -> Self:
        """Parties that end at the first loss of their peer, and at once if they cannot start."""
        write_first_files(directory, NAMES, f"127.0.0.1:{free_port()}", sample)
        workspace = cls(directory)
        for role in ROLES:
            workspace.change(role, "outage: 1800.0", "outage: 0.0")
            workspace.change(role, "notice: 5.0", "notice: 0.0")
        return workspace

    def patient(self, seconds: float = 60.0) -> Self:
        """The same parties, which now wait for a lost peer and go on."""
        for role in ROLES:
            self.configure(role, {"timeouts.outage": seconds})
        return self

    def copy(self, directory: Path) -> Self:
        """The same files in another folder, results and checkpoints included."""
        shutil.copytree(self.directory, directory)
        return type(self)(directory)

    def config(self, role: RoleName) -> Path:
        return self.directory / f"{role}.yml"

    def table(self, role: RoleName) -> Path:
        return load_config(self.config(role)).data.train.path

    def change(self, role: RoleName, old: str, new: str) -> None:
        """Edit a configuration as its owner would."""
        text = self.config(role).read_text()
        assert old in text
        self.config(role).write_text(text.replace(old, new))

    def configure(self, role: RoleName, changes: Mapping[str, object]) -> None:
        """Set keys, given as `section.key`; the file's comments are lost."""
        values = yaml.safe_load(self.config(role).read_text())
        for dotted, value in changes.items():
            *sections, key = dotted.split(".")
            section = values
            for name in sections:
                section = section[name]
            assert key in section
            section[key] = value
        self.config(role).write_text(yaml.safe_dump(values))

    def run_directory(self, role: RoleName) -> RunDirectory:
        return RunDirectory(load_config(self.config(role)).run_directory)

    def alignment(self, role: RoleName) -> Alignment:
        return self.run_directory(role).load_alignment()

    def assert_aligned(self) -> None:
        """Both results are there, and are those of the true union."""
        ids, views = {}, {}
        for role in ROLES:
            alignment = self.alignment(role)
            summary = alignment.summary
            ids[role] = list(read_ids(self.table(role), "person", "strip"))
            views[role] = AlignedView(
                alignment.rank_of_row,
                bytes.fromhex(summary.union_sha256),
                summary.sizes,
            )
        assert is_ideal(ids["active"], ids["passive"], views["active"], views["passive"])

    def is_clean(self, role: RoleName) -> bool:
        """Whether there is no result, whole or half-written; exchanges to go on from may be."""
        runs = self.run_directory(role)
        known = {".lock", runs.work("align").name}
        return not runs.path.exists() or {entry.name for entry in runs.path.iterdir()} <= known

    def start(self, role: RoleName, *options: str, stage: str = "align") -> Party:
        command = [sys.executable, "-m", "florist.cli.entry"]
        return Party(
            role,
            subprocess.Popen(
                [*command, *self._arguments(role, stage), *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ),
        )

    def start_warm(
        self,
        role: RoleName,
        *options: str,
        stage: str = "train",
        first: Callable[[], None] | None = None,
    ) -> Party:
        """The same command, without the seconds that loading torch takes; `first` comes first."""
        return Party(role, ForkedProcess([*self._arguments(role, stage), *options], first))

    def _arguments(self, role: RoleName, stage: str) -> list[str]:
        return ["--role", role, "--stage", stage, "--config", str(self.config(role))]


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "florist.common.stages.train",
        "florist.active_party.training",
        "florist.passive_party.training",
        "torch._dynamo",
        __name__,
    ]
)


def _become_party(
    arguments: list[str], output: Connection, first: Callable[[], None] | None
) -> None:
    if first is not None:
        first()
    for standard in (sys.stdout, sys.stderr):
        os.dup2(output.fileno(), standard.fileno())
    sys.argv = ["florist-party", *arguments]
    main()


class ForkedProcess:
    """A party forked from a process that has loaded everything, used as a `Popen` is."""

    def __init__(self, arguments: list[str], first: Callable[[], None] | None) -> None:
        reader, writer = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=_become_party, args=(arguments, writer, first))
        self._process.start()
        with reader, writer:
            self.stdout = os.fdopen(os.dup(reader.fileno()))

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a party", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()


@dataclass
class Party:
    """One running party; use as a context, so that it never outlives its test."""

    role: str
    process: subprocess.Popen[str] | ForkedProcess
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, timeout: float = 30) -> None:
        """Wait until a line matches."""

        def is_there() -> bool:
            found = any(re.search(pattern, line) for line in list(self.lines))
            is_alive = self.process.poll() is None or self._reader.is_alive()
            assert found or is_alive, self.output
            return found

        wait_until(is_there, timeout, lambda: f"no {pattern!r} in:\n{self.output}")

    def finish(self, timeout: float = 60) -> int:
        """Wait for its end, for so many seconds on an idle machine; its exit code."""
        code = self.process.wait(PATIENCE * timeout)
        self._reader.join(5)
        return code

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if error is not None:
            print(f"--- {self.role} ---\n{self.output}")  # noqa: T201 - pytest shows it on failure
