"""A model that answers first and learns later, for the party whose peer waits for its gradients.

The peer waits for the gradients by what it sent; those of our own weights can come when there is
nothing else to do, while the peer ends its batch. Backward through a linear layer needs its
weights, not their gradients: these follow from what went into the layer and from the gradient by
what came out, in the same sums to the last bit. (Pipelines of one model over many machines do it
alike: Qi et al., "Zero Bubble Pipeline Parallelism", 2024.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from florist.common.training.compute import LocalCompute, LocalPass, Tensors


class DeferredWeightCompute:
    """A model in this process: what its passes are to learn, they learn with the step."""

    def __init__(self, local: LocalCompute) -> None:
        self._local = local
        self._layers = _WatchedLayers(local.model)
        #: What is still to be learnt.
        self._owed: list[Callable[[], None]] = []

    def zero_grad(self) -> None:
        self._owed.clear()
        self._local.zero_grad()

    def forward(self, *inputs: Tensor) -> DeferredWeightPass:
        self._layers.uses.clear()
        taken = self._local.forward(*inputs)
        uses = self._layers.uses.copy()
        return DeferredWeightPass(taken.outputs, taken, uses, self._layers.others, self._owed)

    def step(self) -> None:
        for learn in self._owed:
            learn()
        self._owed.clear()
        self._local.step()

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self._local.state(**further)

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self._local.load(tensors, facts)

    def close(self) -> None:
        self._local.close()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeferredWeightPass:
    """Gives back at once, and leaves a note of what it is to learn."""

    outputs: Tensors
    _taken: LocalPass
    _uses: list[_LayerUse]
    #: Parameters outside linear layers.
    _others: list[nn.Parameter]
    _owed: list[Callable[[], None]]

    def backward(self, gradients: Tensors) -> None:
        self._owed.append(lambda: self._taken.backward(gradients))

    def input_gradient(self, gradients: Tensors) -> Tensor:
        return self._taken.input_gradient(gradients)

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        sought = [get_gradient_edge(self._taken.first), *(use.output for use in self._uses)]
        sought += map(get_gradient_edge, self._others)
        first, *further = torch.autograd.grad(
            self._taken.results[: len(gradients)], sought, gradients, allow_unused=True
        )
        self._owed.append(lambda: self._learn(further))
        return first

    @torch.no_grad()
    def _learn(self, gradients: Sequence[Tensor | None]) -> None:
        """From the gradients by the outputs of each layer, and by each other parameter."""
        by_output, by_other = gradients[: len(self._uses)], gradients[len(self._uses) :]
        for use, gradient in zip(self._uses, by_output, strict=True):
            if gradient is not None:
                _add(use.layer.weight, gradient.t().mm(use.inputs))
                _add(use.layer.bias, gradient.sum(0))
        for parameter, gradient in zip(self._others, by_other, strict=True):
            if gradient is not None:
                _add(parameter, gradient)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _LayerUse:
    """What went into a layer, and where the gradient by what came out is found."""

    layer: nn.Linear
    inputs: Tensor
    output: GradientEdge


class _WatchedLayers:
    """Notes each use of a model's linear layers from which a gradient can come."""

    def __init__(self, model: nn.Module) -> None:
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        watched = {id(parameter) for layer in layers for parameter in layer.parameters()}
        self.uses: list[_LayerUse] = []
        #: The model's other parameters.
        self.others = [each for each in model.parameters() if id(each) not in watched]
        for layer in layers:
            layer.register_forward_hook(self._note)

    def _note(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            assert isinstance(layer, nn.Linear)
            self.uses.append(_LayerUse(layer, inputs[0].detach(), get_gradient_edge(output)))


def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient
