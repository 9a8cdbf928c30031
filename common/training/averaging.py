"""The average of the weights over the last steps, which is evaluated, saved and served.

Synthetic labels are random, so each step also fits noise; an average over many steps contains less
of it. The average stays on this party's machine. It is the polynomial-decay average of Shamir and
Zhang (2013): after `t` steps it covers about the last `1 / (1 + DECAY)` of them, for any length of
run.
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
    """The average of one half's weights. Tables with sparse updates keep their last weights."""

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
        """Include the model's weights after a step."""
        self._steps += 1
        share = (1 + DECAY) / (self._steps + DECAY)
        for name, mean in self._means.items():
            mean.lerp_(self._weights[name], share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside the context, and restore its own after."""
        own = {name: value.clone() for name, value in self._weights.items()}
        self.apply()
        try:
            yield
        finally:
            _copy(own, self._weights)

    def apply(self) -> None:
        """Give the model the averaged weights for good."""
        if self._steps:
            _copy(self._means, self._weights)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to store in a checkpoint."""
        return {_STEPS: torch.tensor(self._steps), **self._means} if self._means else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from what `state` returned for the same model."""
        if self._means:
            self._steps = int(state[_STEPS])
            _copy({name: state[name] for name in self._means}, self._means)


def _is_sparse(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding) and module.sparse


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, value in target.items():
        value.copy_(source[name])
