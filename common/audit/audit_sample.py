"""Which UIDs a self-audit follows through all epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.synthetic.features import (
    DonorStrategy,
    FeatureSettings,
    feature_strategy,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.training_data import TrainingData

    Flags = npt.NDArray[np.bool_]

#: UIDs that are looked at together.
_BLOCK = 1 << 20


def followed_uids(role: RoleName, data: TrainingData, draws: SecretDraws, rows: int) -> Flags:
    """For each UID of the union whether it is followed: about `rows` of them, the same each time.

    The first ones, since a place in the union is random. But whoever shows another's features is
    followed if that one is: else a sample would part nearly all copies from their originals, by
    which the peer, who sees all UIDs, may recognise them. A UID is as likely to be followed as any
    other.
    """
    donors = _donors(data, draws) if role == "passive" else None
    row_of_rank = data.train.membership.row_of_rank
    if donors is None:
        return np.arange(len(row_of_rank)) < rows
    own = np.flatnonzero(row_of_rank >= 0)
    rank_of_row = np.empty(len(own), dtype=np.int64)
    rank_of_row[row_of_rank[own]] = own
    followed = np.empty(len(row_of_rank), dtype=np.bool_)
    for start in range(0, len(followed), _BLOCK):
        ranks = np.arange(start, min(start + _BLOCK, len(followed)))
        stand_ins = donors.donors(ranks, 0)
        shown = np.where(row_of_rank[ranks] >= 0, row_of_rank[ranks], stand_ins)
        followed[ranks] = rank_of_row[shown] < rows
    return followed


def _donors(data: TrainingData, draws: SecretDraws) -> DonorStrategy | None:
    """Who stands in for the UIDs that we lack, where it is one of our rows."""
    agreement, features = data.agreement, data.train.features
    if features is None:
        return None
    settings = FeatureSettings(draws, len(features), agreement.cut_width, sticky=agreement.sticky)
    strategy = feature_strategy(agreement.features.strategy, settings)
    return strategy if isinstance(strategy, DonorStrategy) else None
