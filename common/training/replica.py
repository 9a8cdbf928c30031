"""A further training process of a party. It only computes: it has no IDs, labels, draws or peer.

    python -m florist.common.training.replica

It reads its settings and then commands from standard input; rows, outputs, gradients and weights
are exchanged through the process group. It ends when its input ends, which also happens when the
party's main process is killed, so no process is left behind.
"""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, BinaryIO, Literal

import torch

from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.section import StrictModel
from florist.common.settings.training import Model, Optimiser
from florist.common.training.compute import LocalCompute
from florist.common.training.devices import enable_determinism
from florist.common.training.model_factory import make_half_model
from florist.common.training.optimisers import Optimisers
from florist.common.training.process_group import (
    TIME_LIMIT,
    ProcessGroup,
    ProcessGroupError,
    open_store,
    shares,
    sum_gradients,
)
from florist.common.training.rate_schedule import RateSchedule
from florist.common.training.run_facts import HalfFacts

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.training.compute import LocalPass, Tensors
    from florist.common.training.models import ActiveModel, BottomModel


class ReplicaSettings(StrictModel):
    """All that a replica needs to start."""

    role: Literal["active", "passive"]
    agreement: TrainingAgreement
    model: Model
    optimiser: Optimiser
    union_size: int
    #: Number of numeric columns, and categories of each categorical one.
    numeric: int
    cardinalities: list[int]
    #: Number of processes, rank 0 included.
    size: int
    device: str
    threads: int
    deterministic: bool
    #: Of this replica.
    rank: int = 0
    #: Path of the rendezvous file.
    store: str = ""
    #: In seconds, for each operation of the group.
    time_limit: float = TIME_LIMIT

    @property
    def rates(self) -> RateSchedule:
        """The learning rate of each step."""
        return RateSchedule.agreed(self.agreement, self.optimiser, self.union_size)

    def make_model(self, device: torch.device) -> BottomModel | ActiveModel:
        """Make the model with arbitrary weights; rank 0 sends the real ones."""
        return make_half_model(
            self.role,
            self.agreement,
            self.model,
            numeric=self.numeric,
            cardinalities=self.cardinalities,
            device=device,
        )

    def new_inputs(self, rows: int, device: torch.device) -> Tensors:
        """Allocate tensors for this many rows of the model's inputs."""
        columns = [(self.numeric, torch.float32), (len(self.cardinalities), torch.int64)]
        if self.role == "active":
            columns = columns if self.numeric or self.cardinalities else []
            columns = [(self.agreement.wire_width, torch.float32), *columns]
        return tuple(
            torch.empty(rows, width, dtype=dtype, device=device) for width, dtype in columns
        )


class Command(IntEnum):
    """What a replica does. The comments say what the two numbers of the command mean."""

    #: Receive weights and optimiser state: length of the description that follows.
    LOAD = 0
    ZERO_GRAD = 1
    #: Number of rows over all ranks; 1 if the first input's gradient will be needed.
    FORWARD = 2
    #: Index of the pass since ZERO_GRAD; number of outputs whose gradients follow.
    BACKWARD = 3
    INPUT_GRADIENT = 4
    BACKWARD_WITH_INPUT_GRADIENT = 5
    #: Number of the step.
    STEP = 6
    #: Send a digest of weights and optimiser state, for comparison.
    DIGEST = 7


HEADER = struct.Struct("<3q")

#: Exit code of a replica that ends because another process did.
OTHER_ENDED = 3


def device_of(rank: int, kind: str) -> torch.device:
    """Return the device of a rank; on cuda, each rank has its own GPU."""
    return torch.device(kind, rank) if kind == "cuda" else torch.device(kind)


class StateDescription(StrictModel):
    """What `LOAD` needs to allocate the tensors of a state: dtype and shape of each."""

    tensors: dict[str, tuple[str, list[int]]]
    facts: HalfFacts

    @classmethod
    def of(cls, tensors: dict[str, Tensor], facts: HalfFacts) -> StateDescription:
        """Describe a state of a half."""
        kinds = {
            name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
            for name, tensor in tensors.items()
        }
        return cls(tensors=kinds, facts=facts)

    def allocate(self, device: torch.device) -> dict[str, Tensor]:
        """Return uninitialised tensors as described."""
        return {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            for name, (dtype, shape) in self.tensors.items()
        }


def digest(compute: LocalCompute) -> Tensor:
    """Return the SHA-256 of all that the next step depends on."""
    tensors, _ = compute.state()
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(found.digest()), dtype=torch.uint8)


class Replica:
    """Executes the commands of rank 0."""

    def __init__(self, settings: ReplicaSettings, group: ProcessGroup) -> None:
        self._settings = settings
        self._group = group
        model = settings.make_model(group.device)
        optimisers = Optimisers(model, settings.optimiser, settings.rates)
        self._compute = LocalCompute(model, optimisers)
        #: Passes since `ZERO_GRAD`; None if this rank had no rows, or backward is done.
        self._passes: list[LocalPass | None] = []

    def serve(self, commands: BinaryIO) -> None:
        """Execute commands until the input ends."""
        while len(header := commands.read(HEADER.size)) == HEADER.size:
            command, first, second = HEADER.unpack(header)
            self._execute(Command(command), first, second, commands)

    def _execute(self, command: Command, first: int, second: int, commands: BinaryIO) -> None:
        match command:
            case Command.LOAD:
                self._load(StateDescription.model_validate_json(commands.read(first)))
            case Command.ZERO_GRAD:
                self._compute.zero_grad()
                self._passes.clear()
            case Command.FORWARD:
                self._forward(first, needs_input_gradient=bool(second))
            case Command.BACKWARD | Command.INPUT_GRADIENT | Command.BACKWARD_WITH_INPUT_GRADIENT:
                self._backward(command, first, second)
            case Command.STEP:
                sum_gradients(self._group, self._compute.model)
                self._compute.step(first)
            case Command.DIGEST:
                self._send((digest(self._compute).to(self._group.device),))

    def _load(self, description: StateDescription) -> None:
        tensors = description.allocate(self._group.device)
        for tensor in tensors.values():
            self._group.broadcast(tensor)
        self._compute.load(tensors, description.facts)

    def _forward(self, rows: int, *, needs_input_gradient: bool) -> None:
        share = shares(rows, self._settings.size)[self._settings.rank]
        count = share.stop - share.start
        if not count:
            self._passes.append(None)
            return
        inputs = self._settings.new_inputs(count, self._group.device)
        for tensor in inputs:
            self._group.receive(tensor, 0)
        inputs[0].requires_grad_(needs_input_gradient)
        local = self._compute.forward(*inputs)
        self._passes.append(local)
        self._send(local.outputs)

    def _backward(self, command: Command, index: int, count: int) -> None:
        local = self._passes[index]
        if local is None:
            return
        gradients = tuple(torch.empty_like(output) for output in local.outputs[:count])
        for gradient in gradients:
            self._group.receive(gradient, 0)
        if command is Command.INPUT_GRADIENT:
            self._send((local.input_gradient(gradients),))
            return
        self._passes[index] = None
        if command is Command.BACKWARD:
            local.backward(gradients)
        else:
            self._send((local.backward_with_input_gradient(gradients),))

    def _send(self, tensors: Tensors) -> None:
        with self._group.sending((0, tensor) for tensor in tensors):
            pass


def main() -> None:
    """Run a replica until its input ends."""
    # The party's main process handles Ctrl-C and SIGTERM, and then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    commands = sys.stdin.buffer
    text = commands.readline()
    if not text:
        return
    settings = ReplicaSettings.model_validate_json(text)
    torch.set_num_threads(settings.threads)
    if settings.deterministic:
        enable_determinism()
    store = open_store(settings.store, settings.size, settings.time_limit)
    store.set(f"ready {settings.rank}", "")
    device = device_of(settings.rank, settings.device)
    try:
        group = ProcessGroup(
            store, settings.rank, settings.size, device, time_limit=settings.time_limit
        )
        Replica(settings, group).serve(commands)
    except ProcessGroupError as error:
        print(error, file=sys.stderr)  # noqa: T201 - read by the party's main process
        sys.exit(OTHER_ENDED)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without waiting for the threads of the process group
