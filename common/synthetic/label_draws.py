"""The secret randomness behind synthetic labels, and the memory that keeps them constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.synthetic.secret_draws import SecretDraws


@dataclass(frozen=True, slots=True)
class LabelDraws:
    """The secret uniform numbers from which labels are sampled.

    Sticky draws are the same for a UID in every epoch. Other draws are made again in each epoch,
    which reveals synthetic rows: a real label never changes.
    """

    draws: SecretDraws
    samples: int = 1
    sticky: bool = True

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigurationError(f"samples: {self.samples} is less than 1")

    def for_rows(self, ranks: npt.NDArray[np.int64], epoch: int) -> Tensor:
        """Return (n, samples) float64 uniforms for UIDs, given by their rank in `U`."""
        positions = ranks[:, None] * self.samples + np.arange(self.samples)
        context = () if self.sticky else (epoch,)
        return torch.from_numpy(self.draws.uniforms_at("label", positions, *context))


class KeptTargets:
    """Keeps each synthetic target as first drawn, since real labels never change either.

    Sticky uniforms alone are not enough: the model's prediction changes, and the label would change
    where the prediction crosses the uniform.
    """

    _NONE = -1.0

    def __init__(self, union_size: int, classes: int) -> None:
        shape = (union_size,) if classes == 2 else (union_size, classes)
        self._targets = torch.full(shape, self._NONE)

    def settle(self, ranks: Tensor, drawn: Tensor) -> Tensor:
        """Return the kept targets of UIDs, given by their rank in `U`; keep new ones as drawn."""
        kept = self._targets[ranks]
        missing = kept == self._NONE
        settled = torch.where(missing, drawn.to(kept), kept)
        self._targets[ranks] = settled
        return settled.to(drawn)

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        return {"kept": self._targets}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        self._targets.copy_(state["kept"])
