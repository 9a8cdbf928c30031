"""Feature rows as tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.data.features import Features


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """A batch's features on the device: numeric (n, k) and categories (n, c)."""

    numeric: Tensor
    categories: Tensor

    @classmethod
    def gather(
        cls, features: Features, rows: npt.NDArray[np.int64], device: torch.device
    ) -> FeatureRows:
        """Copy these rows to the device."""
        return cls.of(features.take(rows), device)

    @classmethod
    def of(cls, features: Features, device: torch.device) -> FeatureRows:
        """Copy all rows to the device, in order."""
        return cls(
            torch.from_numpy(features.numeric).to(device, non_blocking=True),
            torch.from_numpy(features.categories.astype(np.int64)).to(device, non_blocking=True),
        )

    def __getitem__(self, part: slice) -> tuple[Tensor, Tensor]:
        return self.numeric[part], self.categories[part]
