"""The sample of UIDs that a self-audit follows through all epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.synthetic.feature_strategies import DonorStrategy, agreed_feature_strategy
from florist.common.synthetic.stand_ins import StandIns

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.training_data import TrainingData

    Flags = npt.NDArray[np.bool_]

#: UIDs per block. Blocks limit the memory that the draws need.
_BLOCK = 1 << 20


def followed_uids(role: RoleName, data: TrainingData, draws: SecretDraws, rows: int) -> Flags:
    """Return, for each UID of the union, whether it is followed: about `rows` of them.

    These are the first ranks, since ranks are random. But a UID whose features are copied from
    another UID is followed exactly if the other one is. Otherwise the sample would separate nearly
    all copies from their originals, by which the peer, who sees all UIDs, may recognise them. Every
    UID is equally likely to be followed, and the same draws always give the same sample.
    """
    stand_ins = _copies(data, draws) if role == "passive" else None
    row_of_rank = data.train.membership.row_of_rank
    if stand_ins is None:
        return np.arange(len(row_of_rank)) < rows
    own = np.flatnonzero(row_of_rank >= 0)
    rank_of_row = np.empty(len(own), dtype=np.int64)
    rank_of_row[row_of_rank[own]] = own
    followed = np.empty(len(row_of_rank), dtype=np.bool_)
    for start in range(0, len(followed), _BLOCK):
        ranks = np.arange(start, min(start + _BLOCK, len(followed)))
        followed[ranks] = rank_of_row[stand_ins.rows(ranks)] < rows
    return followed


def _copies(data: TrainingData, draws: SecretDraws) -> StandIns | None:
    """Return the stand-ins of training, or None if no row is copied."""
    if data.train.features is None:
        return None
    strategy = agreed_feature_strategy(data.agreement, len(data.train.features), draws)
    if not isinstance(strategy, DonorStrategy):
        return None
    return StandIns.of_strategy(data.train.membership, strategy)
