"""A half's weights and optimiser state as one flat set of named tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.training.run_facts import HalfFacts

if TYPE_CHECKING:
    from torch import Tensor, nn

    from florist.common.training.optimisers import Optimisers


def pack(
    model: nn.Module, optimisers: Optimisers, **further: dict[str, Tensor]
) -> tuple[dict[str, Tensor], HalfFacts]:
    """Return the facts and all tensors, each named `<group>.<name>`."""
    optimiser_tensors, facts = optimisers.state()
    groups = {"model": model.state_dict(), "optimiser": optimiser_tensors, **further}
    tensors = {
        f"{group}.{name}": tensor
        for group, named in groups.items()
        for name, tensor in named.items()
    }
    return tensors, HalfFacts(facts)


def unpack(
    tensors: dict[str, Tensor], facts: HalfFacts, model: nn.Module, optimisers: Optimisers
) -> None:
    """Restore the weights and the optimiser from what `pack` returned.

    Raises:
        ConfigurationError: they are of another model or optimiser.
    """
    try:
        model.load_state_dict(tensors_of("model", tensors))
    except RuntimeError:  # torch's, with a long message
        raise ConfigurationError(
            "the checkpoint is of a different model; set `model` and the columns as they were, or "
            "start over with --force"
        ) from None
    optimisers.load(tensors_of("optimiser", tensors), facts.optimiser)


def tensors_of(group: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one group, named without the group."""
    prefix = f"{group}."
    return {
        key.removeprefix(prefix): tensor
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }
