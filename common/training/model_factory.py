"""Makes the models of both parties from the settings and the agreement."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import nn

from florist.common.core.errors import ConfigurationError
from florist.common.training.models import (
    ActiveModel,
    BottomModel,
    FeatureTower,
    PriorModel,
    TopModel,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.core.roles import RoleName
    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.settings.training import EmbeddingUpdates, Model

#: Number of table rows from which `auto` uses sparse updates. With fewer rows dense updates, which
#: are exactly Adam, are as fast on CPUs; see benchmarks/embedding_updates.py.
SPARSE_FROM = 2_000_000


def make_bottom(
    settings: Model,
    *,
    numeric: int,
    cardinalities: Sequence[int],
    cut_width: int,
    wide: int = 0,
    device: torch.device,
    seed: int,
) -> BottomModel:
    """Make the passive party's half on `device`; `wide` is the width of its wide part.

    Raises:
        ConfigurationError: the last layer is not as wide as the agreed cut, or a setting is not
            supported.
    """
    settings.check_cut_width(cut_width)
    return BottomModel(
        numeric=numeric,
        cardinalities=cardinalities,
        embedding_width=settings.embedding_width,
        layers=settings.hidden,
        wide=wide,
        late_fusion=not cut_width,
        sparse=uses_sparse_updates(settings.embedding_updates, sum(cardinalities), device),
        seed=seed,
    ).to(device)


def make_active(  # noqa: PLR0913 - keyword-only
    settings: Model,
    *,
    numeric: int = 0,
    cardinalities: Sequence[int] = (),
    cut_width: int,
    outputs: int = 1,
    wide: bool = False,
    sees_shares: bool = False,
    with_prior: bool = False,
    device: torch.device,
    seed: int,
) -> ActiveModel:
    """Make the active party's half on `device`, with a tower if it has feature columns.

    `wide` adds the wide part of its columns, if there are any, and of the peer's embeddings. With
    `sees_shares`, the layers see the latter next to the columns; for late fusion only.
    `with_prior` adds a prior for these columns.

    Raises:
        ConfigurationError: a setting is not supported.
    """

    def make_tower(seed: int) -> FeatureTower:
        return FeatureTower(
            numeric=numeric,
            cardinalities=cardinalities,
            embedding_width=settings.embedding_width,
            layers=settings.tower,
            wide=outputs if wide else 0,
            sparse=uses_sparse_updates(settings.embedding_updates, sum(cardinalities), device),
            seed=seed,
        )

    has_features = bool(numeric or cardinalities)
    tower = make_tower(seed) if has_features else None
    prior = PriorModel(make_tower(seed + 1), outputs, seed) if has_features and with_prior else None
    top = TopModel(
        cut_width=cut_width,
        tower_width=tower.width if tower else 0,
        layers=settings.hidden,
        outputs=outputs,
        wide=wide,
        sees_shares=sees_shares,
        seed=seed,
    )
    return ActiveModel(top, tower, prior).to(device)


def make_agreed_active(
    agreement: TrainingAgreement,
    settings: Model,
    *,
    numeric: int,
    cardinalities: Sequence[int],
    device: torch.device,
    seed: int,
) -> ActiveModel:
    """Make the active party's half with the agreed cut, outputs and prior."""
    return make_active(
        settings,
        numeric=numeric,
        cardinalities=cardinalities,
        cut_width=agreement.cut_width,
        outputs=agreement.outputs,
        wide=agreement.wide,
        # Otherwise gradients of the shares would no longer be those of the logits.
        sees_shares=agreement.shows_shares_only,
        # Without masking, the prior would also learn from stand-ins' features.
        with_prior=agreement.masking and agreement.calibration != "none",
        device=device,
        seed=seed,
    )


def make_half_model(
    role: RoleName,
    agreement: TrainingAgreement,
    settings: Model,
    *,
    numeric: int,
    cardinalities: Sequence[int],
    device: torch.device,
) -> ActiveModel | BottomModel:
    """Make the role's half with arbitrary weights, which the caller replaces."""
    if role == "active":
        return make_agreed_active(
            agreement,
            settings,
            numeric=numeric,
            cardinalities=cardinalities,
            device=device,
            seed=0,
        )
    return make_bottom(
        settings,
        numeric=numeric,
        cardinalities=cardinalities,
        cut_width=agreement.cut_width,
        wide=agreement.wide_outputs,
        device=device,
        seed=0,
    )


def uses_sparse_updates(choice: EmbeddingUpdates, rows: int, device: torch.device) -> bool:
    """Return whether a table of this many rows gets sparse gradients.

    Raises:
        ConfigurationError: sparse updates are set, but the device has no sparse tensors.
    """
    if device.type == "mps":
        if choice == "sparse":
            raise ConfigurationError(
                "model.embedding_updates: the device mps does not support sparse; use dense or auto"
            )
        return False
    return choice == "sparse" or (choice == "auto" and rows >= SPARSE_FROM)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def describe(model: nn.Module) -> str:
    """Return one line about the model: parameters, embedding tables and how they are updated."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    alike = Counter(
        f"{table.num_embeddings:,} embeddings of width {table.embedding_dim} with "
        f"{'sparse' if table.sparse else 'dense'} updates"
        for table in tables
    )
    parts = [f"{count_parameters(model):,} parameters"] + [
        text if count == 1 else f"{count:,} tables of {text} each" for text, count in alike.items()
    ]
    return f"{type(model).__name__}: {', '.join(parts)}"
