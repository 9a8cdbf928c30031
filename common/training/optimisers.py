"""Optimisers: dense updates of whole tensors, and sparse updates of the table rows in a batch.

Sparse updates apply the same rule as dense ones, but only to the rows in the batch. For SGD without
momentum and weight decay the result is the same. Otherwise it differs: a dense step also moves rows
that have moments from earlier batches, lets those moments decay, and applies weight decay to every
row. A sparse step leaves such rows unchanged until they appear again ("lazy" Adam, as in
torch.optim.SparseAdam).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from florist.common.core.errors import ConfigurationError
from florist.common.training.embedding_rows import sum_rows
from florist.common.training.run_facts import OptimiserFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from florist.common.settings.training import Optimiser
    from florist.common.training.rate_schedule import RateSchedule

#: Adam's usual constants.
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Optimisers:
    """Updates all parameters of a model: its sparse tables sparsely, the others densely.

    The state survives saving and loading bit for bit.
    """

    def __init__(self, model: nn.Module, settings: Optimiser, rates: RateSchedule) -> None:
        self._rates = rates
        self._rule = settings.name
        self._parameters = dict(model.named_parameters())
        self._sparse = {
            f"{name}.weight" if name else "weight": SparseRowOptimiser(module.weight, settings)
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding) and module.sparse
        }
        dense = [value for name, value in self._parameters.items() if name not in self._sparse]
        self._dense = _dense_optimiser(dense, settings, rates.peak)

    def zero_grad(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def step(self, step: int) -> None:
        """Apply the gradients with the rate of this step, counted from 0."""
        rate = self._rates(step)
        for group in self._dense.param_groups:
            group["lr"] = rate
        self._dense.step()
        for table in self._sparse.values():
            table.step(rate)

    def state(self) -> tuple[dict[str, Tensor], OptimiserFacts]:
        """Return all that the next step depends on besides weights, gradients and settings.

        The tensors are not copies: the next step changes them.
        """
        tensors = {
            f"{name}/{key}": value
            for name in self._parameters
            for key, value in self._state_of(name).items()
            if isinstance(value, Tensor)
        }
        return tensors, OptimiserFacts(self._rule, list(self._sparse))

    def load(self, tensors: Mapping[str, Tensor], facts: OptimiserFacts) -> None:
        """Restore a state that `state` returned for the same model and rule.

        Learning rate, weight decay and momentum are taken from the settings, even if they changed.

        Raises:
            ConfigurationError: the state is of another model or rule; nothing is loaded.
        """
        here = self.state()[1]
        if facts != here:
            raise ConfigurationError(
                f"the checkpoint is of a different optimiser: {_describe(facts)} there, "
                f"{_describe(here)} here; set `optimiser.name` and `model.embedding_updates` as "
                "they were, or start over"
            )
        for path, value in tensors.items():
            parameter = self._parameters.get(path.rpartition("/")[0])
            if parameter is None or value.shape not in {parameter.shape, torch.Size()}:
                raise ConfigurationError(
                    f"the checkpoint is of a different model: the optimiser's {path} does not fit; "
                    "set `model` and the columns as they were, or start over"
                )
        for name, parameter in self._parameters.items():
            state = self._state_of(name)
            state.clear()
            for path, value in tensors.items():
                owner, _, key = path.rpartition("/")
                if owner == name:
                    state[key] = value.to(parameter.device, copy=True)

    def _state_of(self, name: str) -> dict[str, Any]:  # as torch's optimisers type it
        if name in self._sparse:
            return self._sparse[name].state
        state: dict[str, Any] = self._dense.state[self._parameters[name]]
        return state


def _describe(facts: OptimiserFacts) -> str:
    return f"{facts.name} with sparse updates of {facts.sparse or 'no table'}"


def _dense_optimiser(parameters: list[nn.Parameter], settings: Optimiser, rate: float) -> Optimizer:
    # Fused: one pass over memory, the fastest of torch's variants, on CPUs as well.
    decay = settings.weight_decay
    match settings.name:
        case "adam":
            return Adam(parameters, rate, BETAS, EPSILON, decay, fused=True)
        case "adamw":
            return AdamW(parameters, rate, BETAS, EPSILON, decay, fused=True)
        case "sgd":
            momentum = settings.momentum
            return SGD(parameters, rate, momentum, weight_decay=decay, fused=True)


class SparseRowOptimiser:
    """Updates only the table rows that are in its sparse gradient.

    Moments are stored for every row. Adam's bias correction uses the number of steps of the table,
    not of the row.
    """

    def __init__(self, table: Tensor, settings: Optimiser) -> None:
        self.state: dict[str, Tensor] = {}
        self._table = table
        self._settings = settings

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradient of the last backward pass, if there is one."""
        if self._table.grad is None:
            return
        # Uncoalesced: torch's `coalesce` takes several times as long as `sum_rows`.
        rows, gradient = sum_rows(
            self._table.grad._indices()[0],  # noqa: SLF001 - `indices` requires coalescing
            self._table.grad._values(),  # noqa: SLF001
        )
        decay = self._settings.weight_decay
        weights = self._table.index_select(0, rows)
        if self._settings.name == "adamw":
            weights.mul_(1 - rate * decay)
        elif decay:
            gradient.add_(weights, alpha=decay)
        if self._settings.name == "sgd":
            weights.add_(self._with_momentum(rows, gradient), alpha=-rate)
        else:
            weights.addcdiv_(*self._moments(rows, gradient), value=-rate)
        self._table.index_copy_(0, rows, weights)

    def _with_momentum(self, rows: Tensor, gradient: Tensor) -> Tensor:
        momentum = self._settings.momentum
        if not momentum:
            return gradient
        direction = self._moment("momentum_buffer", rows).mul_(momentum).add_(gradient)
        self.state["momentum_buffer"].index_copy_(0, rows, direction)
        return direction

    def _moments(self, rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return Adam's bias-corrected mean and its denominator."""
        first, second = BETAS
        step = self.state.setdefault("step", torch.zeros((), dtype=torch.int64)).add_(1).item()
        mean = self._moment("exp_avg", rows).lerp_(gradient, 1 - first)
        square = self._moment("exp_avg_sq", rows)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        self.state["exp_avg"].index_copy_(0, rows, mean)
        self.state["exp_avg_sq"].index_copy_(0, rows, square)
        mean.div_(1 - first**step)
        return mean, square.div_(1 - second**step).sqrt_().add_(EPSILON)

    def _moment(self, key: str, rows: Tensor) -> Tensor:
        """Return a copy of these rows of a moment, which is initialised to zero."""
        if key not in self.state:
            self.state[key] = torch.zeros_like(self._table)
        return self.state[key].index_select(0, rows)
