"""The sample of an audit is fair, and keeps copied rows together with their originals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from florist.common.audit import audit_sample
from florist.common.audit.audit_sample import followed_uids
from florist.common.data.features import Features
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import FeatureStrategyName, TrainingAgreement
from florist.common.synthetic.feature_strategies import FeaSampling
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.training_data import TrainingData, TrainingTable

UNION, OWN = 5000, 1500
DRAWS = SecretDraws.from_seed(4)


def parts(strategy: FeatureStrategyName = "fea-sampling") -> TrainingData:
    rank_of_row = np.random.default_rng(3).permutation(UNION)[:OWN]
    table = TrainingTable(
        Membership.of(rank_of_row, UNION),
        UnionSizes(OWN, UNION - OWN, UNION),
        Features(np.zeros((OWN, 1), dtype=np.float32), np.zeros((OWN, 0), dtype=np.int32)),
        None,
    )
    agreement = TrainingAgreement.model_validate({"features": {"strategy": strategy}})
    return TrainingData(agreement, torch.device("cpu"), table, None)


@pytest.mark.parametrize("block", [1 << 20, 999])
def test_copies_are_followed_with_their_originals(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(audit_sample, "_BLOCK", block)
    followed = followed_uids("passive", parts(), DRAWS, rows=1000)
    row_of_rank = parts().train.membership.row_of_rank
    donors = FeaSampling(DRAWS, OWN).donors(np.arange(UNION), 0)
    family = np.where(row_of_rank >= 0, row_of_rank, donors)
    for rank in np.flatnonzero(followed)[::50]:
        assert followed[family == family[rank]].all()
    assert 900 < followed.sum() < 1100
    share = (row_of_rank[followed] >= 0).mean()
    assert share == pytest.approx(OWN / UNION, abs=0.05)


def test_the_first_ranks_are_followed_if_no_row_is_copied() -> None:
    expected = np.arange(UNION) < 700
    assert np.array_equal(followed_uids("active", parts(), DRAWS, rows=700), expected)
    tell_tale = parts("fea-gaussian")
    assert np.array_equal(followed_uids("passive", tell_tale, DRAWS, rows=700), expected)


def test_all_uids_of_a_small_union_are_followed() -> None:
    for role in ("active", "passive"):
        assert followed_uids(role, parts(), DRAWS, rows=UNION).all()
