"""A party's input to training: its tables, their ranks in the union, and the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from florist.common.data.features import Features
    from florist.common.session.union_sizes import UnionSizes
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.synthetic.membership import Membership


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TrainingTable:
    """One table of the party: features and labels by row, and the row of each UID."""

    membership: Membership
    #: UnionSizes of the padded ID sets and of the union.
    sizes: UnionSizes
    #: None for an active party without features.
    features: Features | None
    #: Class of each row; at the active party only.
    labels: npt.NDArray[np.int64] | None

    @property
    def rows(self) -> int:
        """The number of rows of the party's own table, without dummies."""
        return int((self.membership.row_of_rank >= 0).sum())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TrainingData:
    """All that a half of the model is trained with."""

    #: With numbers instead of `auto`, for the union of `train`.
    agreement: TrainingAgreement
    device: torch.device
    train: TrainingTable
    test: TrainingTable | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "agreement", self.agreement.resolved(self.train.sizes.union))
