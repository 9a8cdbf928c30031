"""Computes the gradients for the peer first, and those of the own weights later.

The peer waits for the gradients with respect to the embeddings that it sent. The gradients of our
own weights can be computed afterwards, while the peer finishes its batch. The backward pass through
a linear layer needs its weights but not their gradients: these follow from the layer's input and
the gradient of its output, with bitwise the same result. (Pipeline parallelism uses the same
technique: Qi et al., "Zero Bubble Pipeline Parallelism", 2024.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from florist.common.training.compute import LocalCompute, LocalPass, Tensors
    from florist.common.training.run_facts import HalfFacts


class DeferredWeightCompute:
    """A model in this process whose weight gradients are computed in `step`."""

    def __init__(self, local: LocalCompute) -> None:
        self._local = local
        self._layers = _LinearLayers(local.model)
        #: Computations of weight gradients that `step` has to run.
        self._deferred: list[Callable[[], None]] = []

    def zero_grad(self) -> None:
        self._deferred.clear()
        self._local.zero_grad()

    def forward(self, *inputs: Tensor) -> DeferredWeightPass:
        self._layers.uses.clear()
        local = self._local.forward(*inputs)
        uses = self._layers.uses.copy()
        return DeferredWeightPass(local.outputs, local, uses, self._layers.others, self._deferred)

    def step(self, step: int) -> None:
        for compute_gradients in self._deferred:
            compute_gradients()
        self._deferred.clear()
        self._local.step(step)

    def state(self, **further: dict[str, Tensor]) -> tuple[dict[str, Tensor], HalfFacts]:
        return self._local.state(**further)

    def load(self, tensors: dict[str, Tensor], facts: HalfFacts) -> None:
        self._local.load(tensors, facts)

    def close(self) -> None:
        self._local.close()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeferredWeightPass:
    """Returns input gradients at once, and defers the gradients of the weights."""

    outputs: Tensors
    _local: LocalPass
    _uses: list[_LayerUse]
    #: Parameters that do not belong to a linear layer.
    _others: list[nn.Parameter]
    _deferred: list[Callable[[], None]]

    def backward(self, gradients: Tensors) -> None:
        self._deferred.append(lambda: self._local.backward(gradients))

    def input_gradient(self, gradients: Tensors) -> Tensor:
        return self._local.input_gradient(gradients)

    def backward_with_input_gradient(self, gradients: Tensors) -> Tensor:
        wanted = [get_gradient_edge(self._local.first), *(use.output for use in self._uses)]
        wanted += map(get_gradient_edge, self._others)
        first, *further = torch.autograd.grad(
            self._local.results[: len(gradients)], wanted, gradients, allow_unused=True
        )
        self._deferred.append(lambda: self._accumulate(further))
        return first

    @torch.no_grad()
    def _accumulate(self, gradients: Sequence[Tensor | None]) -> None:
        """Add to the parameters' gradients, from those of the layers' outputs and the others'."""
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
    """A layer's input, and the autograd edge at which its output's gradient is found."""

    layer: nn.Linear
    inputs: Tensor
    output: GradientEdge


class _LinearLayers:
    """Records each use of a model's linear layers through which a gradient can flow."""

    def __init__(self, model: nn.Module) -> None:
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        covered = {id(parameter) for layer in layers for parameter in layer.parameters()}
        self.uses: list[_LayerUse] = []
        #: The model's parameters outside these layers.
        self.others = [each for each in model.parameters() if id(each) not in covered]
        for layer in layers:
            layer.register_forward_hook(self._record)

    def _record(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            assert isinstance(layer, nn.Linear)
            self.uses.append(_LayerUse(layer, inputs[0].detach(), get_gradient_edge(output)))


def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient
