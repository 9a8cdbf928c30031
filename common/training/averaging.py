"""The mean of the weights along the way: what a run ends with, and what is tested and served.

Synthetic labels are drawn, so each step learns some noise with the rest; the mean over many steps
holds less of it. Nothing of it crosses the line. The mean is the polynomial-decay average of Shamir
and Zhang (2013): after `t` steps it covers about the last `1 / (1 + DECAY)` of them, however long
the run is.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

#: The larger, the fewer of the last steps count.
DECAY = 9

_STEPS = "steps"


class WeightAverage:
    """Of one half's model. Tables with sparse updates are left out and keep their last weights."""

    def __init__(self, model: nn.Module, *, on: bool) -> None:
        self._steps = 0
        self._weights: dict[str, Tensor] = {}
        if on:
            sparse = {id(m.weight) for m in model.modules() if _is_sparse(m)}
            self._weights = {
                name: value.data
                for name, value in model.named_parameters()
                if id(value) not in sparse
            }
        self._means = {name: value.clone() for name, value in self._weights.items()}

    def update(self) -> None:
        """Take the weights after a step into the mean."""
        self._steps += 1
        share = (1 + DECAY) / (self._steps + DECAY)
        for name, mean in self._means.items():
            mean.lerp_(self._weights[name], share)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The model has the mean weights within, and its own again after."""
        own = {name: value.clone() for name, value in self._weights.items()}
        self.take()
        try:
            yield
        finally:
            _copy(own, self._weights)

    def take(self) -> None:
        """Give the model the mean weights for good."""
        if self._steps:
            _copy(self._means, self._weights)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {_STEPS: torch.tensor(self._steps), **self._means} if self._means else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave, of the same model."""
        if self._means:
            self._steps = int(state[_STEPS])
            _copy({name: state[name] for name in self._means}, self._means)


def _is_sparse(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding) and module.sparse


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, value in target.items():
        value.copy_(source[name])
