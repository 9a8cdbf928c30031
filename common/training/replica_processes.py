"""Starts and controls the further training processes of a party (`replica.py`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError
from florist.common.training.process_group import ProcessGroup, ProcessGroupError, open_store
from florist.common.training.replica import HEADER, OTHER_ENDED, Command, ReplicaSettings, device_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from florist.common.core.clock import Clock

#: Time limit in seconds for a process to start and import torch.
START_LIMIT = 120.0

#: Seconds to wait until a process that closed its connections has ended.
_END_LIMIT = 3.0

#: Seconds between two looks at the processes.
_POLL_INTERVAL = 0.02

_MODULE = "florist.common.training.replica"


class TrainingProcessLost(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """One of this party's own training processes ended or does not answer."""

    advice = (
        "Find out why it ended (often too little memory) and start again: the run resumes from its "
        "last checkpoint."
    )
    will_reconnect = True

    @property
    def for_peer(self) -> str:
        return "one of its training processes ended"


class Replicas:
    """The processes of the other ranks, and their process group with this one."""

    group: ProcessGroup

    def __init__(self, settings: ReplicaSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        """Start them; return when all have joined.

        Raises:
            TrainingProcessLost: a process did not start.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="florist-")  # readable by this user only
        self._processes: list[_Process] = []
        self._clock = clock
        try:
            self._start(settings)
        except BaseException:
            self.close()
            raise

    def _start(self, settings: ReplicaSettings) -> None:
        path = str(Path(self._folder.name, "store"))
        store = open_store(path, settings.size, settings.time_limit)
        for rank in range(1, settings.size):
            process = _Process()
            self._processes.append(process)
            own = settings.model_copy(update={"rank": rank, "store": path})
            self._write(process, own.model_dump_json().encode() + b"\n")
        deadline = self._clock.now() + START_LIMIT
        while not store.check([f"ready {rank}" for rank in range(1, settings.size)]):
            if not self._all_alive() or self._clock.now() > deadline:
                raise self._lost()
            self._clock.sleep(_POLL_INTERVAL)
        with self.reporting_loss():
            self.group = ProcessGroup(
                store,
                0,
                settings.size,
                device_of(0, settings.device),
                time_limit=settings.time_limit,
                all_alive=self._all_alive,
                clock=self._clock,
            )

    def command(
        self, command: Command, first: int = 0, second: int = 0, *, text: bytes = b""
    ) -> None:
        """Send a command with its two numbers to all replicas.

        Raises:
            TrainingProcessLost: a process ended.
        """
        for process in self._processes:
            self._write(process, HEADER.pack(command, first, second) + text)

    def gather(self, own: Tensor, parts: list[slice]) -> Tensor:
        """Return the rows of all ranks, in order, given those of this rank."""
        rows = own.new_empty((parts[-1].stop, *own.shape[1:]))
        rows[parts[0]] = own
        for rank, part in enumerate(parts[1:], 1):
            self.group.receive(rows[part], rank)
        return rows

    @contextmanager
    def reporting_loss(self) -> Iterator[None]:
        """Turn errors of the process group into TrainingProcessLost, with the cause."""
        try:
            yield
        except ProcessGroupError:
            raise self._lost() from None

    def close(self) -> None:
        """Kill the processes; they have no state worth keeping."""
        for process in self._processes:
            process.kill()
        if hasattr(self, "group") and self.group.device.type == "cuda":
            self.group.abort()  # otherwise this process would wait for them when it exits
        self._folder.cleanup()

    def _write(self, process: _Process, data: bytes) -> None:
        try:
            process.write(data)
        except BrokenPipeError:
            raise self._lost() from None

    def _all_alive(self) -> bool:
        return all(process.is_alive for process in self._processes)

    def _lost(self) -> TrainingProcessLost:
        deadline = self._clock.now() + _END_LIMIT
        while self._all_alive() and self._clock.now() < deadline:
            self._clock.sleep(_POLL_INTERVAL)
        ended = [process for process in self._processes if not process.is_alive]
        ended.sort(key=lambda process: process.code == OTHER_ENDED)  # the original cause first
        return TrainingProcessLost(
            f"a training process of this party ended: {ended[0].exit_reason}"
            if ended
            else "a training process of this party does not answer"
        )


class _Process:
    """A replica, in an operating-system process group of its own: Ctrl-C does not reach it."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `kill` closes it
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            process_group=0,
        )

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.returncode

    @property
    def exit_reason(self) -> str:
        code = self._process.returncode
        if code < 0:
            return f"signal {-code} ({signal.Signals(-code).name})"
        self._stderr.seek(0, os.SEEK_SET)
        lines = self._stderr.read().decode(errors="replace").splitlines()
        return f"exit code {code}" + (f", {lines[-1]}" if lines else "")

    def kill(self) -> None:
        self._process.kill()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._stderr.close()
