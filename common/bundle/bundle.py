"""A trained half of the model in memory, ready for evaluation and serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from florist.common.training.predictions import predictions
from florist.common.training.torch_batch import FeatureRows

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.core.roles import RoleName
    from florist.common.data.features import Features
    from florist.common.data.preprocessing import Preprocessing
    from florist.common.settings.agreement import Agreement
    from florist.common.synthetic.calibration import Calibration
    from florist.common.training.models import ActiveModel, BottomModel


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bundle:
    """What the bundles of both roles have in common; its files were verified on loading."""

    role: RoleName
    #: ID of the training run, 32 bytes; the same for both halves.
    run: bytes
    #: SHA-256 of this half and of the peer's half.
    digest: bytes
    peer_digest: bytes
    #: The agreement it was trained with, whatever the configuration says today.
    agreement: Agreement
    union_sha256: str
    preprocessing: Preprocessing
    device: torch.device

    def __repr__(self) -> str:
        return f"{type(self).__name__}(run {self.run.hex()[:12]}, {self.preprocessing!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassiveBundle(Bundle):
    """The passive party's half: the bottom model `f`."""

    model: BottomModel

    @torch.no_grad()
    def embed(self, features: Features) -> Tensor:
        """Return `f(X)` without noise, of shape (rows, wire_width)."""
        rows = FeatureRows.of(features, self.device)
        embeddings: Tensor = self.model(rows.numeric, rows.categories)
        return embeddings


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActiveBundle(Bundle):
    """The active party's half: the top model `h` and, if it has features, their tower and prior."""

    model: ActiveModel
    calibration: Calibration
    #: The values of the label column, in the order of the classes.
    class_names: tuple[str, ...]

    @property
    def has_features(self) -> bool:
        """Whether predictions need features of the active party."""
        return self.model.tower is not None

    @torch.no_grad()
    def predict(self, embeddings: Tensor, own: Features | None = None) -> Tensor:
        """Return calibrated predictions.

        Args:
            embeddings: the passive party's, one per row.
            own: the active party's features of the same rows; required if and only if
                `has_features`.

        Returns:
            P(y=1) of shape (rows,) for two classes, otherwise (rows, classes).
        """
        if (own is not None) != self.has_features:
            raise ValueError("own features are required if and only if the model has a tower")
        columns = () if own is None else FeatureRows.of(own, self.device)[:]
        return predictions(self.model, self.calibration, embeddings.to(self.device), *columns)
