"""Forward and backward passes of a half's model, separate from what the half does with them.

A half passes rows in and gets outputs that are detached from the model, so everything that follows
(loss, synthetic data, sending) ends at these outputs. It then passes their gradients back. The
model may therefore run in this process or in several that share the rows (`distributed.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from florist.common.training.half_state import pack, unpack

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.training.models import ActiveModel, BottomModel
    from florist.common.training.optimisers import Optimisers
    from florist.common.training.run_facts import HalfFacts

Tensors = tuple["Tensor", ...]


class Pass(Protocol):
    """A pass of rows through the model: forward is done, backward follows.

    `gradients` are those with respect to the outputs, in their order; gradients of the last outputs
    may be left out.
    """

    @property
    def outputs(self) -> Tensors:
        """The outputs for all rows, detached from the model."""
        ...

    def backward(self, gradients: Tensors) -> None:
        """Accumulate the parameters' gradients, at the latest in `step`. Ends the pass."""
        ...

    def input_gradient(self, gradients: Tensors) -> Tensor:
        """Return the gradient with respect to the first input; `backward` may follow."""
        ...

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        """Do both for the same gradients, at the cost of one backward pass."""
        ...


class Compute(Protocol):
    """A model in training: forward and backward passes, then an optimiser step."""

    def zero_grad(self) -> None:
        """Start a step."""
        ...

    def forward(self, *inputs: Tensor) -> Pass:
        """Run at least one row. The first input must require grad if its gradient is needed."""
        ...

    def step(self, step: int) -> None:
        """Update the parameters with the gradients since `zero_grad`; steps count from 0."""
        ...

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], HalfFacts]:
        """Return the state as `half_state.pack` does."""
        ...

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        """Restore a state as `half_state.unpack` does."""
        ...

    def close(self) -> None:
        """Release processes after the last step; `state` still works."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LocalPass:
    """A pass through a model in this process."""

    outputs: Tensors
    first: Tensor
    #: The outputs, attached to the model.
    results: Tensors
    _parameters: list[Tensor]

    def backward(self, gradients: Tensors) -> None:
        inputs = self._parameters if self.first.requires_grad else None
        torch.autograd.backward(self.results[: len(gradients)], gradients, inputs=inputs)

    def input_gradient(self, gradients: Tensors) -> Tensor:
        results = self.results[: len(gradients)]
        (gradient,) = torch.autograd.grad(results, self.first, gradients, retain_graph=True)
        return gradient

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        torch.autograd.backward(self.results[: len(gradients)], gradients)
        assert self.first.grad is not None
        return self.first.grad


class LocalCompute:
    """A model in this process."""

    def __init__(self, model: BottomModel | ActiveModel, optimisers: Optimisers) -> None:
        self.model = model
        self.optimisers = optimisers
        self._parameters: list[Tensor] = list(model.parameters())

    def zero_grad(self) -> None:
        self.optimisers.zero_grad()

    def forward(self, *inputs: Tensor) -> LocalPass:
        results = self.model.outputs(*inputs)
        outputs = tuple(result.detach() for result in results)
        return LocalPass(outputs, inputs[0], results, self._parameters)

    def step(self, step: int) -> None:
        self.optimisers.step(step)

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], HalfFacts]:
        return pack(self.model, self.optimisers, **further)

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        unpack(tensors, facts, self.model, self.optimisers)

    def close(self) -> None:
        """Do nothing: there is no other process."""
