"""A half's model in several processes of one party.

The party's main process is rank 0. Only it has the tables, the secrets, the connection to the peer
and access to the disk, and only it runs the half's own logic. The other ranks (`replica.py`) hold
the same model: they get a share of the rows of each micro-batch, return the outputs, and receive
their gradients. At the end of a step gradients are summed over all ranks, and each rank makes the
same optimiser step, so the models stay bitwise the same. The result equals that of a single process
except for rounding.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from florist.common.core.errors import ConfigurationError
from florist.common.training.compute import LocalCompute
from florist.common.training.deferred_weights import DeferredWeightCompute
from florist.common.training.optimisers import Optimisers
from florist.common.training.process_group import (
    ProcessGroup,
    ProcessGroupError,
    open_store,
    shares,
    sum_gradients,
)
from florist.common.training.replica import (
    HEADER,
    OTHER_ENDED,
    Command,
    ReplicaSettings,
    StateDescription,
    device_of,
    digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from florist.common.core.roles import RoleName
    from florist.common.training.compute import Compute, LocalPass, Tensors
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.models import ActiveModel, BottomModel
    from florist.common.training.run_facts import HalfFacts

#: Time limit in seconds for a process to start and import torch.
START_LIMIT = 120.0

#: Seconds to wait until a process that closed its connections has ended.
_END_LIMIT = 3.0

_MODULE = "florist.common.training.replica"


class TrainingProcessLost(ConfigurationError):  # noqa: N818 - named after the event, like the others
    """One of this party's own training processes ended or does not answer."""

    advice = (
        "Find out why it ended (often too little memory) and start again: the run resumes from its "
        "last checkpoint."
    )
    returns = True

    @property
    def for_peer(self) -> str:
        return "one of its training processes ended"


def make_compute(role: RoleName, setup: HalfSetup, model: BottomModel | ActiveModel) -> Compute:
    """Make the compute of a half; further processes start with the first pass."""
    local = LocalCompute(model, Optimisers(model, setup.optimiser))
    if setup.processes == 1:
        return DeferredWeightCompute(local) if role == "active" else local
    settings = ReplicaSettings(
        role=role,
        agreement=setup.data.agreement,
        model=setup.model,
        optimiser=setup.optimiser,
        numeric=setup.numeric,
        cardinalities=list(setup.cardinalities),
        size=setup.processes,
        device=setup.data.device.type,
        threads=torch.get_num_threads(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    return DistributedCompute(local, settings)


class DistributedCompute:
    """The models of all ranks as one model. Not thread-safe."""

    def __init__(self, local: LocalCompute, settings: ReplicaSettings) -> None:
        self._local = local
        self._settings = settings
        self._replicas: Replicas | None = None
        #: Whether the replicas have the current weights.
        self._is_in_sync = False
        self._passes = 0

    def zero_grad(self) -> None:
        self._local.zero_grad()
        self._passes = 0
        if self._replicas is not None:
            self._replicas.command(Command.ZERO_GRAD)

    def forward(self, *inputs: Tensor) -> DistributedPass:
        replicas = self._synced_replicas()
        rows, first = len(inputs[0]), inputs[0]
        parts = shares(rows, replicas.group.size)
        number, self._passes = self._passes, self._passes + 1
        replicas.command(Command.FORWARD, rows, int(first.requires_grad))
        with replicas.reporting_loss(), replicas.group.sending(_shares_of_others(inputs, parts)):
            own = [tensor.detach()[parts[0]] for tensor in inputs]
            own[0].requires_grad_(first.requires_grad)
            local = self._local.forward(*own)
            outputs = tuple(replicas.gather(output, parts) for output in local.outputs)
        return DistributedPass(outputs, local, replicas, number, parts)

    def step(self) -> None:
        replicas = self._synced_replicas()
        replicas.command(Command.STEP)
        with replicas.reporting_loss():
            sum_gradients(replicas.group, self._local.model)
        self._local.step()

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], HalfFacts]:
        return self._local.state(**further)

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        self._local.load(tensors, facts)
        self._is_in_sync = False

    def digests(self) -> list[bytes]:
        """Return the digest of weights and optimiser state of each rank; all must be equal."""
        replicas = self._synced_replicas()
        replicas.command(Command.DIGEST)
        own = digest(self._local).to(replicas.group.device)
        with replicas.reporting_loss():
            theirs = [
                replicas.group.receive(torch.empty_like(own), rank)
                for rank in range(1, replicas.group.size)
            ]
        return [each.cpu().numpy().tobytes() for each in (own, *theirs)]

    def close(self) -> None:
        if self._replicas is not None:
            self._replicas.close()

    def _synced_replicas(self) -> Replicas:
        """Return the other ranks, after starting them and sending them the weights if needed."""
        if self._replicas is None:
            self._replicas = Replicas(self._settings)
        if not self._is_in_sync:
            tensors, facts = self._local.state()
            description = StateDescription.of(tensors, facts).model_dump_json().encode()
            self._replicas.command(Command.LOAD, len(description), text=description)
            with self._replicas.reporting_loss():
                for tensor in tensors.values():
                    self._replicas.group.broadcast(tensor.detach().to(self._replicas.group.device))
            self._is_in_sync = True
        return self._replicas


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedPass:
    """A pass through the models of all ranks, each with a share of the rows."""

    outputs: Tensors
    _local: LocalPass
    _replicas: Replicas
    _number: int
    _parts: list[slice]

    def backward(self, gradients: Tensors) -> None:
        with self._backward(Command.BACKWARD, gradients) as own:
            self._local.backward(own)

    def input_gradient(self, gradients: Tensors) -> Tensor:
        with self._backward(Command.INPUT_GRADIENT, gradients) as own:
            return self._replicas.gather(self._local.input_gradient(own), self._parts)

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        with self._backward(Command.BACKWARD_WITH_INPUT_GRADIENT, gradients) as own:
            return self._replicas.gather(self._local.backward_with_input_gradient(own), self._parts)

    @contextmanager
    def _backward(self, command: Command, gradients: Tensors) -> Iterator[Tensors]:
        """Send the other ranks their shares of the gradients; yield this rank's share."""
        self._replicas.command(command, self._number, len(gradients))
        with (
            self._replicas.reporting_loss(),
            self._replicas.group.sending(_shares_of_others(gradients, self._parts)),
        ):
            yield tuple(gradient[self._parts[0]] for gradient in gradients)


def _shares_of_others(tensors: Tensors, parts: list[slice]) -> Iterator[tuple[int, Tensor]]:
    """Yield each other rank with its share of each tensor."""
    for rank, part in enumerate(parts[1:], 1):
        for tensor in tensors:
            yield rank, tensor.detach()[part]


class Replicas:
    """The processes of the other ranks, and their process group with this one."""

    group: ProcessGroup

    def __init__(self, settings: ReplicaSettings) -> None:
        """Start them; return when all have joined.

        Raises:
            TrainingProcessLost: a process did not start.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="florist-")  # readable by this user only
        self._processes: list[_Process] = []
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
        deadline = time.monotonic() + START_LIMIT
        while not store.check([f"ready {rank}" for rank in range(1, settings.size)]):
            if not self._all_alive() or time.monotonic() > deadline:
                raise self._lost()
            time.sleep(0.02)
        with self.reporting_loss():
            self.group = ProcessGroup(
                store,
                0,
                settings.size,
                device_of(0, settings.device),
                time_limit=settings.time_limit,
                all_alive=self._all_alive,
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
        deadline = time.monotonic() + _END_LIMIT
        while self._all_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
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
