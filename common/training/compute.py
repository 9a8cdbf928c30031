"""What a half's model computes, apart from what the half decides.

A half hands rows in and takes outputs; these are cut off from the model, so all that follows (the
loss, synthetic data, the line) ends at them. What they are worth comes back as gradients. So the
model may be one in this process, or several, which share the rows out (`distributed.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from florist.common.training.half_state import pack, unpack

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.training.models import ActiveModel, BottomModel
    from florist.common.training.optimisers import Optimisers

Tensors = tuple["Tensor", ...]


class Pass(Protocol):
    """Rows on their way through the model: forward is done, and backward is to come.

    Gradients are those by the outputs, in their order; of the last outputs they may be missing.
    """

    @property
    def outputs(self) -> Tensors:
        """Of all rows, without gradients of their own."""
        ...

    def backward(self, gradients: Tensors) -> None:
        """Add to the gradients of the parameters, by the step at the latest. Nothing can follow."""
        ...

    def input_gradient(self, gradients: Tensors) -> Tensor:
        """The gradient by the first input. Parameters are left alone, and `learn` can follow."""
        ...

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        """Both from the same gradients, at the price of one."""
        ...


class Compute(Protocol):
    """A model in training: passes forward and back, then a step."""

    def zero_grad(self) -> None:
        """Begin a step."""
        ...

    def forward(self, *inputs: Tensor) -> Pass:
        """Of one row at least. The first input requires a gradient if it is to be given back."""
        ...

    def step(self) -> None:
        """Move the parameters by what was learnt since `zero_grad`."""
        ...

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As `half_state.pack`."""
        ...

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """As `half_state.unpack`."""
        ...

    def close(self) -> None:
        """Call it when no more steps come; `state` still works."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LocalPass:
    """Through a model in this process."""

    outputs: Tensors
    first: Tensor
    #: The outputs as the model gave them.
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

    def step(self) -> None:
        self.optimisers.step()

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return pack(self.model, self.optimisers, **further)

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        unpack(tensors, facts, self.model, self.optimisers)

    def close(self) -> None:
        """Nothing to end."""
