"""A half's weights and optimiser as one flat set of named tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from florist.common.training.optimisers import Optimisers


def pack(
    model: nn.Module, optimisers: Optimisers, **further: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors under `model.`, `optimiser.` and the name of each further group; JSON facts."""
    optimiser_tensors, facts = optimisers.state()
    groups = {"model": model.state_dict(), "optimiser": optimiser_tensors, **further}
    tensors = {
        f"{group}.{name}": tensor
        for group, named in groups.items()
        for name, tensor in named.items()
    }
    return tensors, {"optimiser": facts}


def unpack(
    tensors: dict[str, Tensor], facts: dict[str, Any], model: nn.Module, optimisers: Optimisers
) -> None:
    """Put weights and optimiser back as `pack` found them.

    Raises:
        ConfigurationError: they are of another model or optimiser.
    """
    try:
        model.load_state_dict(tensors_of("model", tensors))
    except RuntimeError:  # of torch, over many lines
        raise ConfigurationError(
            "the checkpoint is of another model; set `model` and the columns as they were, or "
            "start anew with --force"
        ) from None
    optimisers.load(tensors_of("optimiser", tensors), facts["optimiser"])


def tensors_of(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one group by their own names."""
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): tensor
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }
