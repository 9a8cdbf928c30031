"""A further training process of a party: it computes, and knows no ID, label, draw or peer.

    python -m florist.common.training.replica

Its settings and then its orders come by its standard input; rows, outputs, gradients and weights
are exchanged within the group of processes. It ends with its input, which ends also when the
party's own process is killed: no process is left behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import torch

from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.section import Section
from florist.common.settings.training import Model, Optimiser
from florist.common.training.compute import LocalCompute
from florist.common.training.devices import deterministic
from florist.common.training.models import make_half_model
from florist.common.training.optimisers import Optimisers
from florist.common.training.process_group import (
    TIME_LIMIT,
    ProcessGroup,
    ProcessGroupError,
    open_store,
    shares,
    sum_gradients,
)

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.training.compute import LocalPass, Tensors
    from florist.common.training.models import ActiveModel, BottomModel


class ReplicaSettings(Section):
    """All that a replica is made from."""

    role: Literal["active", "passive"]
    agreement: TrainingAgreement
    model: Model
    optimiser: Optimiser
    #: Columns of the party's features.
    numeric: int
    cardinalities: list[int]
    size: int
    device: str
    threads: int
    deterministic: bool
    #: Of this one.
    rank: int = 0
    #: File by which the processes find each other.
    store: str = ""
    #: Seconds, for each exchange.
    time_limit: float = TIME_LIMIT

    def make_model(self, device: torch.device) -> BottomModel | ActiveModel:
        """With any weights: those of rank 0 come soon."""
        return make_half_model(
            self.role,
            self.agreement,
            self.model,
            numeric=self.numeric,
            cardinalities=self.cardinalities,
            device=device,
        )

    def new_inputs(self, rows: int, device: torch.device) -> Tensors:
        """Room for as many rows of the model's inputs."""
        columns = [(self.numeric, torch.float32), (len(self.cardinalities), torch.int64)]
        if self.role == "active":
            columns = columns if self.numeric or self.cardinalities else []
            columns = [(self.agreement.cut_width, torch.float32), *columns]
        return tuple(
            torch.empty(rows, width, dtype=dtype, device=device) for width, dtype in columns
        )


class Command(IntEnum):
    """What to do; then what the two numbers that come with it are."""

    #: Take weights and optimiser: length of their description, which follows.
    LOAD = 0
    ZERO_GRAD = 1
    #: Rows of all ranks; 1 if the first input's gradient will be asked for.
    FORWARD = 2
    #: Number of the pass since ZERO_GRAD; number of the outputs whose gradients come.
    BACKWARD = 3
    INPUT_GRADIENT = 4
    BACKWARD_WITH_INPUT_GRADIENT = 5
    STEP = 6
    #: Send a digest of weights and optimiser, to compare.
    DIGEST = 7


HEADER = struct.Struct("<3q")

#: Exit code of a replica that ends because another process did.
OTHER_ENDED = 3


def device_of(rank: int, kind: str) -> torch.device:
    """Each rank has a GPU of its own."""
    return torch.device(kind, rank) if kind == "cuda" else torch.device(kind)


def describe_tensors(tensors: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    """What `LOAD` needs to make room for them."""
    kinds = {
        name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
        for name, tensor in tensors.items()
    }
    return json.dumps({"tensors": kinds, "facts": facts}).encode()


def digest(compute: LocalCompute) -> Tensor:
    """SHA-256 of all that the next step depends on."""
    tensors, _ = compute.state()
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(found.digest()), dtype=torch.uint8)


class Replica:
    """Does as rank 0 orders."""

    def __init__(self, settings: ReplicaSettings, group: ProcessGroup) -> None:
        self._settings = settings
        self._group = group
        model = settings.make_model(group.device)
        self._compute = LocalCompute(model, Optimisers(model, settings.optimiser))
        #: Since `ZERO_GRAD`; None where this rank had no rows, or has learnt.
        self._passes: list[LocalPass | None] = []

    def serve(self, orders: BinaryIO) -> None:
        """Until the orders end."""
        while len(header := orders.read(HEADER.size)) == HEADER.size:
            order, first, second = HEADER.unpack(header)
            self._obey(Command(order), first, second, orders)

    def _obey(self, order: Command, first: int, second: int, orders: BinaryIO) -> None:
        match order:
            case Command.LOAD:
                self._load(json.loads(orders.read(first)))
            case Command.ZERO_GRAD:
                self._compute.zero_grad()
                self._passes.clear()
            case Command.FORWARD:
                self._forward(first, gives_back=bool(second))
            case Command.BACKWARD | Command.INPUT_GRADIENT | Command.BACKWARD_WITH_INPUT_GRADIENT:
                self._backward(order, first, second)
            case Command.STEP:
                sum_gradients(self._group, self._compute.model)
                self._compute.step()
            case Command.DIGEST:
                self._send((digest(self._compute).to(self._group.device),))

    def _load(self, described: dict[str, Any]) -> None:
        tensors = {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device=self._group.device)
            for name, (dtype, shape) in described["tensors"].items()
        }
        for tensor in tensors.values():
            self._group.broadcast(tensor)
        self._compute.load(tensors, described["facts"])

    def _forward(self, rows: int, *, gives_back: bool) -> None:
        share = shares(rows, self._settings.size)[self._settings.rank]
        count = share.stop - share.start
        if not count:
            self._passes.append(None)
            return
        inputs = self._settings.new_inputs(count, self._group.device)
        for tensor in inputs:
            self._group.receive(tensor, 0)
        inputs[0].requires_grad_(gives_back)
        taken = self._compute.forward(*inputs)
        self._passes.append(taken)
        self._send(taken.outputs)

    def _backward(self, order: Command, number: int, count: int) -> None:
        taken = self._passes[number]
        if taken is None:
            return
        gradients = tuple(torch.empty_like(output) for output in taken.outputs[:count])
        for gradient in gradients:
            self._group.receive(gradient, 0)
        if order is Command.INPUT_GRADIENT:
            self._send((taken.input_gradient(gradients),))
            return
        self._passes[number] = None
        if order is Command.BACKWARD:
            taken.backward(gradients)
        else:
            self._send((taken.backward_with_input_gradient(gradients),))

    def _send(self, tensors: Tensors) -> None:
        with self._group.sending((0, tensor) for tensor in tensors):
            pass


def main() -> None:
    """Serve until the input ends."""
    # Ctrl-C and SIGTERM are for the party's own process, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    orders = sys.stdin.buffer
    text = orders.readline()
    if not text:
        return
    settings = ReplicaSettings.model_validate_json(text)
    torch.set_num_threads(settings.threads)
    if settings.deterministic:
        deterministic()
    store = open_store(settings.store, settings.size, settings.time_limit)
    store.set(f"ready {settings.rank}", "")
    device = device_of(settings.rank, settings.device)
    try:
        group = ProcessGroup(
            store, settings.rank, settings.size, device, time_limit=settings.time_limit
        )
        Replica(settings, group).serve(orders)
    except ProcessGroupError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the party's own process reads it
        sys.exit(OTHER_ENDED)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # nothing to keep, and threads of the group would be waited for
