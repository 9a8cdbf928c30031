"""A half's model in several processes of one party.

The party's main process is rank 0. Only it has the tables, the secrets, the connection to the peer
and access to the disk, and only it runs the half's own logic. The other ranks (`replica.py`) hold
the same model: they get a share of the rows of each micro-batch, return the outputs, and receive
their gradients. At the end of a step gradients are summed over all ranks, and each rank makes the
same optimiser step, so the models stay bitwise the same. The result equals that of a single process
except for rounding.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from florist.common.training.compute import LocalCompute
from florist.common.training.deferred_weights import DeferredWeightCompute
from florist.common.training.optimisers import Optimisers
from florist.common.training.process_group import shares, sum_gradients
from florist.common.training.replica import Command, ReplicaSettings, StateDescription, digest
from florist.common.training.replica_processes import Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from florist.common.core.roles import RoleName
    from florist.common.training.compute import Compute, LocalPass, Tensors
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.models import ActiveModel, BottomModel
    from florist.common.training.run_facts import HalfFacts


def make_compute(role: RoleName, setup: HalfSetup, model: BottomModel | ActiveModel) -> Compute:
    """Make the compute of a half; further processes start with the first pass."""
    local = LocalCompute(model, Optimisers(model, setup.optimiser, setup.rates))
    if setup.processes == 1:
        return DeferredWeightCompute(local) if role == "active" else local
    settings = ReplicaSettings(
        role=role,
        agreement=setup.data.agreement,
        model=setup.model,
        optimiser=setup.optimiser,
        union_size=setup.data.train.sizes.union,
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

    def step(self, step: int) -> None:
        replicas = self._synced_replicas()
        replicas.command(Command.STEP, step)
        with replicas.reporting_loss():
            sum_gradients(replicas.group, self._local.model)
        self._local.step(step)

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
