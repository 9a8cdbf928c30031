"""Every place that needs a stand-in uses the same rule: training, evaluation, serving and audit.

The rows are pinned for fixed secrets. A resumed run, a repeated evaluation and a restarted service
must draw the same rows again, so these values may never change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from florist.active_party.training import make_active_half
from florist.common.core.errors import ProtocolViolation
from florist.common.data.features import Features
from florist.common.evaluation.evaluation_data import EvaluationData
from florist.common.evaluation.reserved_rows import evaluation_stand_ins
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import EvaluationAgreement, TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.synthetic.donor_pool import DonorPool
from florist.common.synthetic.membership import Membership
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.synthetic.stand_ins import StandIns
from florist.common.training.feed import Position
from florist.common.training.half_setup import HalfSetup
from florist.common.training.history import History
from florist.common.training.loop import Run
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.schedule import Schedule
from florist.common.training.training_data import TrainingData, TrainingTable
from florist.common.training.training_journal import TrainingJournal
from florist.common.transport.in_memory import linked_pair
from florist.passive_party.training import make_passive_half

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.settings.agreement import FeatureStrategyName, StandInMode
    from florist.common.training.torch_batch import FeatureRows

UNION, OWN = 16, 6
RANK_OF_ROW = np.array([12, 3, 7, 0, 9, 14])
MEMBERSHIP = Membership.of(RANK_OF_ROW, UNION)
DRAWS = SecretDraws(bytes(range(32)))
ALL = np.arange(UNION)
#: The number in each row is the row's own index, so that a batch shows which rows it holds.
FEATURES = Features(np.arange(OWN, dtype=np.float32)[:, None], np.empty((OWN, 0), dtype=np.int32))


def parts(strategy: FeatureStrategyName = "fea-sampling", *, sticky: bool = True) -> TrainingData:
    agreement = TrainingAgreement.model_validate(
        {
            "features": {"strategy": strategy},
            "sticky": sticky,
            "epochs": 2,
            "cut_width": 2,
            "stand_ins": "plain",
        }
    ).resolved(UNION)
    table = TrainingTable(
        MEMBERSHIP, UnionSizes(OWN, UNION - OWN + 2, UNION), FEATURES, np.arange(OWN) % 2
    )
    return TrainingData(agreement, torch.device("cpu"), table, None)


def run(folder: Path) -> Run:
    return Run(
        Schedule(bytes(32), union_size=UNION, batch_size=UNION, epochs=2),
        DRAWS,
        History(),
        RunCheckpoints(folder, keep=1),
        0,
        {},
        lambda _: None,
        lambda _: None,
        TrainingJournal(None),
    )


def setup(given: TrainingData) -> HalfSetup:
    return HalfSetup(given, 1, (), Model(hidden=[2], tower=[2]), Optimiser())


def rows_shown(role: RoleName, given: TrainingData, epoch: int, folder: Path) -> list[int]:
    """The rows that a half of the model uses for all UIDs; checks which it counts as its own."""
    link, _ = linked_pair()
    channel, at = link.channel("training"), Position(epoch, epoch, 0)
    features: FeatureRows | None
    if role == "active":
        half = make_active_half(setup(given), channel, run(folder))
        mine = half.prepare(at, ALL)
        features, is_own = mine.features, mine.has_label
    else:
        batch = make_passive_half(setup(given), channel, run(folder)).prepare(at, ALL)
        features, is_own = batch.prepared.begin().features, batch.is_real
    link.close()
    assert features is not None
    assert np.flatnonzero(is_own.numpy()).tolist() == sorted(RANK_OF_ROW.tolist())
    return [int(row) for row in features.numeric[:, 0]]


def evaluation_parts(mode: StandInMode) -> EvaluationData:
    features = Features(np.zeros((30, 1), np.float32), np.empty((30, 0), np.int32))
    return EvaluationData(
        EvaluationAgreement(table=True, stand_ins=mode),
        MEMBERSHIP,
        UnionSizes(OWN, 12, UNION),
        np.arange(10, 24),
        features,
        None,
        DRAWS,
    )


# --- the rows, as they have always been ---

STICKY = [3, 1, 3, 1, 3, 5, 3, 2, 3, 4, 4, 2, 0, 0, 5, 2]
DRAWN_PER_EPOCH = [
    [3, 0, 4, 1, 1, 1, 5, 2, 0, 4, 4, 1, 0, 1, 5, 2],
    [3, 1, 5, 1, 3, 0, 1, 2, 2, 4, 5, 4, 0, 3, 5, 2],
]
#: The first row where the embedding is replaced.
PLACEHOLDERS = [3, 0, 0, 1, 0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 5, 0]
EVALUATED_ONCE = [3, 21, 19, 1, 14, 10, 16, 2, 11, 4, 20, 13, 0, 18, 5, 15]
EVALUATED_REPEATED = [3, 19, 21, 1, 21, 29, 9, 2, 9, 4, 22, 20, 0, 12, 5, 20]
SERVED = [3, 3, 0, 1, 5, 3, 3, 2, 3, 4, 1, 3, 0, 3, 5, 2]


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("role", ["active", "passive"])
def test_rows_of_training(role: RoleName, epoch: int, tmp_path: Path) -> None:
    assert rows_shown(role, parts(), epoch, tmp_path) == STICKY
    redrawn = rows_shown(role, parts(sticky=False), epoch, tmp_path)
    assert redrawn == DRAWN_PER_EPOCH[epoch]


def test_rows_of_training_where_embeddings_are_synthetic(tmp_path: Path) -> None:
    """The active party's own stand-ins do not depend on the passive party's strategy."""
    given = parts("fea-gaussian")
    assert rows_shown("passive", given, 0, tmp_path) == PLACEHOLDERS
    assert rows_shown("active", given, 0, tmp_path) == STICKY


@pytest.mark.parametrize(
    ("mode", "rows"), [("once", EVALUATED_ONCE), ("repeated", EVALUATED_REPEATED)]
)
def test_rows_of_evaluation(mode: StandInMode, rows: list[int]) -> None:
    assert evaluation_stand_ins(evaluation_parts(mode)).rows(ALL).tolist() == rows


def test_rows_of_serving() -> None:
    """`tests/end_to_end/serving/test_groups.py` checks that served tables use these."""
    secret = DRAWS.derive("00" * 32)
    assert StandIns.sampled(MEMBERSHIP, OWN, secret).rows(ALL).tolist() == SERVED


#: For eight UIDs: any row for class 0, which has 4 donors, and donors of class 1, which has 36.
OFFERED = [[91, 61, 99, 20, 26, 89, 28, 27], [78, 94, 77, 71, 96, 88, 91, 60]]


def test_rows_of_oblivious_stand_ins() -> None:
    """`tests/unit/synthetic/test_donor_pool.py` checks the rule."""
    pool = DonorPool(2, 100, DRAWS)
    pool.add(np.arange(60, 100), np.where(np.arange(40) % 10 == 9, 0, 1))
    assert pool.offers(np.arange(8), step=3).rows.tolist() == OFFERED


# --- one rule ---


@pytest.mark.parametrize("sticky", [True, False])
def test_the_audit_is_told_which_rows_training_shows(tmp_path: Path, *, sticky: bool) -> None:
    given = parts(sticky=sticky)
    shown = rows_shown("passive", given, 0, tmp_path)
    link, _ = linked_pair()
    half = make_passive_half(setup(given), link.channel("training"), run(tmp_path))
    step = half.prepare(Position(0, 0, 0), ALL).prepared.begin()
    for part in (slice(0, 5), slice(5, UNION)):
        parcel = step.parcel(part, torch.zeros(part.stop - part.start, 3))
        opened = step.opened(parcel, torch.zeros(part.stop - part.start, 3))
        assert opened.rows.tolist() == shown[part]
    link.close()


def test_too_few_reserved_rows_are_refused() -> None:
    """Our own padding has its share of them, so that only the peer can have brought too many."""
    few = replace(
        evaluation_parts("once"), kept_out=np.arange(10, 19), sizes=UnionSizes(10, 9, UNION)
    )
    with pytest.raises(ProtocolViolation, match="more than was agreed"):
        evaluation_stand_ins(few)
