"""A half's model in several processes of one party, behind its one stream to the peer.

The party's own process is rank 0. It alone has the tables, the secrets, the peer and the disk, and
it decides all that a half decides. The other ranks (`replica.py`) hold the same model: of each part
of a batch they get a share of the rows, give outputs back, and take the gradients of these. At the
end of a step gradients are summed over all ranks, and each makes the same step, so the models stay
alike to the last bit. What comes out is what one process computes, but for rounding.
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
from typing import TYPE_CHECKING, Any

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
    describe_tensors,
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

#: Seconds for a process to start and to load torch.
START_LIMIT = 120.0

#: Seconds for one that has closed its connections to be seen as ended.
_END_LIMIT = 3.0

_MODULE = "florist.common.training.replica"


class TrainingProcessLost(ConfigurationError):  # noqa: N818 - as the others, it reads as what happened
    """One of this party's own training processes ended, or does not answer."""

    advice = (
        "Look for what ended it, often too little memory; start again: the run goes on from its "
        "last checkpoint."
    )
    returns = True

    @property
    def for_peer(self) -> str:
        return "a training process of its own ended"


def make_compute(role: RoleName, setup: HalfSetup, model: BottomModel | ActiveModel) -> Compute:
    """Of as many processes as the setup says; further ones start with the first pass."""
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
    """The models of all ranks as one. Use it from one thread."""

    def __init__(self, local: LocalCompute, settings: ReplicaSettings) -> None:
        self._local = local
        self._settings = settings
        self._replicas: Replicas | None = None
        #: Whether the replicas have our weights.
        self._is_alike = False
        self._passes = 0

    def zero_grad(self) -> None:
        self._local.zero_grad()
        self._passes = 0
        if self._replicas is not None:
            self._replicas.tell(Command.ZERO_GRAD)

    def forward(self, *inputs: Tensor) -> DistributedPass:
        replicas = self._ready()
        rows, first = len(inputs[0]), inputs[0]
        parts = shares(rows, replicas.group.size)
        number, self._passes = self._passes, self._passes + 1
        replicas.tell(Command.FORWARD, rows, int(first.requires_grad))
        with replicas.watched(), replicas.group.sending(_shared(inputs, parts)):
            own = [tensor.detach()[parts[0]] for tensor in inputs]
            own[0].requires_grad_(first.requires_grad)
            local = self._local.forward(*own)
            outputs = tuple(replicas.gathered(output, parts) for output in local.outputs)
        return DistributedPass(outputs, local, replicas, number, parts)

    def step(self) -> None:
        replicas = self._ready()
        replicas.tell(Command.STEP)
        with replicas.watched():
            sum_gradients(replicas.group, self._local.model)
        self._local.step()

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._local.state(**further)

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self._local.load(tensors, facts)
        self._is_alike = False

    def digests(self) -> list[bytes]:
        """Of weights and optimiser on each rank: all the same, unless there is a bug."""
        replicas = self._ready()
        replicas.tell(Command.DIGEST)
        own = digest(self._local).to(replicas.group.device)
        with replicas.watched():
            theirs = [
                replicas.group.receive(torch.empty_like(own), rank)
                for rank in range(1, replicas.group.size)
            ]
        return [each.cpu().numpy().tobytes() for each in (own, *theirs)]

    def close(self) -> None:
        if self._replicas is not None:
            self._replicas.close()

    def _ready(self) -> Replicas:
        """The other ranks, with our weights."""
        if self._replicas is None:
            self._replicas = Replicas(self._settings)
        if not self._is_alike:
            tensors, facts = self._local.state()
            description = describe_tensors(tensors, facts)
            self._replicas.tell(Command.LOAD, len(description), text=description)
            with self._replicas.watched():
                for tensor in tensors.values():
                    self._replicas.group.broadcast(tensor.detach().to(self._replicas.group.device))
            self._is_alike = True
        return self._replicas


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DistributedPass:
    """Through the models of all ranks, a share of the rows each."""

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
            return self._replicas.gathered(self._local.input_gradient(own), self._parts)

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        with self._backward(Command.BACKWARD_WITH_INPUT_GRADIENT, gradients) as own:
            return self._replicas.gathered(
                self._local.backward_with_input_gradient(own), self._parts
            )

    @contextmanager
    def _backward(self, order: Command, gradients: Tensors) -> Iterator[Tensors]:
        """This rank's share of the gradients, while the others have theirs."""
        self._replicas.tell(order, self._number, len(gradients))
        with (
            self._replicas.watched(),
            self._replicas.group.sending(_shared(gradients, self._parts)),
        ):
            yield tuple(gradient[self._parts[0]] for gradient in gradients)


def _shared(tensors: Tensors, parts: list[slice]) -> Iterator[tuple[int, Tensor]]:
    """What each other rank is to get."""
    for rank, part in enumerate(parts[1:], 1):
        for tensor in tensors:
            yield rank, tensor.detach()[part]


class Replicas:
    """The other ranks' processes, and the group that they make with this one."""

    group: ProcessGroup

    def __init__(self, settings: ReplicaSettings) -> None:
        """Returns when all are there.

        Raises:
            TrainingProcessLost: one could not start.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="florist-")  # for this user alone
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
            if not self._all_live() or time.monotonic() > deadline:
                raise self._lost()
            time.sleep(0.02)
        with self.watched():
            self.group = ProcessGroup(
                store,
                0,
                settings.size,
                device_of(0, settings.device),
                time_limit=settings.time_limit,
                all_live=self._all_live,
            )

    def tell(self, order: Command, first: int = 0, second: int = 0, *, text: bytes = b"") -> None:
        """Give all of them an order.

        Raises:
            TrainingProcessLost: one has ended.
        """
        for process in self._processes:
            self._write(process, HEADER.pack(order, first, second) + text)

    def gathered(self, own: Tensor, parts: list[slice]) -> Tensor:
        """Rows of all ranks in their order, of which these are ours."""
        rows = own.new_empty((parts[-1].stop, *own.shape[1:]))
        rows[parts[0]] = own
        for rank, part in enumerate(parts[1:], 1):
            self.group.receive(rows[part], rank)
        return rows

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Exchanges within fail with the reason."""
        try:
            yield
        except ProcessGroupError:
            raise self._lost() from None

    def close(self) -> None:
        """End them at once: they hold nothing that is to be kept."""
        for process in self._processes:
            process.end()
        if hasattr(self, "group") and self.group.device.type == "cuda":
            self.group.abort()  # or this process would wait for them at its end
        self._folder.cleanup()

    def _write(self, process: _Process, data: bytes) -> None:
        try:
            process.write(data)
        except BrokenPipeError:
            raise self._lost() from None

    def _all_live(self) -> bool:
        return all(process.is_live for process in self._processes)

    def _lost(self) -> TrainingProcessLost:
        deadline = time.monotonic() + _END_LIMIT
        while self._all_live() and time.monotonic() < deadline:
            time.sleep(0.02)
        ended = [process for process in self._processes if not process.is_live]
        ended.sort(key=lambda process: process.code == OTHER_ENDED)  # the cause comes first
        return TrainingProcessLost(
            f"a training process of this party ended: {ended[0].how_it_ended}"
            if ended
            else "a training process of this party does not answer"
        )


class _Process:
    """One replica. In a process group of its own: Ctrl-C in the terminal does not reach it."""

    def __init__(self) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            process_group=0,
        )

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    @property
    def is_live(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.returncode

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode
        if code < 0:
            return f"signal {-code} ({signal.Signals(-code).name})"
        self._words.seek(0, os.SEEK_SET)
        lines = self._words.read().decode(errors="replace").splitlines()
        return f"exit code {code}" + (f", {lines[-1]}" if lines else "")

    def end(self) -> None:
        self._process.kill()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._words.close()
