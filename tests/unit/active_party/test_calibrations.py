"""Which calibration holds in which step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from florist.active_party.calibrations import Calibrations, first_matched_step
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import TrainingAgreement
from florist.common.synthetic.calibration import Counts
from florist.common.synthetic.donor_pool import FEWEST, SHOWN_SHARE
from florist.common.synthetic.membership import Membership
from florist.common.training.training_data import TrainingData, TrainingTable

#: 1,000 UIDs: 500 with a label, 600 with features, 100 with both.
ROWS, UNION = 500, 1000
PI = (0.8, 0.2)


def data(**agreed: object) -> TrainingData:
    table = TrainingTable(
        Membership.of(np.arange(ROWS), UNION),
        UnionSizes(ROWS, 600, UNION),
        None,
        np.arange(ROWS) % 5 // 4,
    )
    agreement = TrainingAgreement.model_validate({"batch_size": 50, **agreed})
    return TrainingData(agreement.resolved(UNION), torch.device("cpu"), table, None)


@pytest.mark.parametrize(
    ("counts", "frequencies", "batch_size", "expected"),
    [
        # Each batch shows 60 labels: 12 of the rarer class.
        (Counts(1000, 500, 600, 100), (0.8, 0.2), 100, 3),
        # A batch is enough; but the first step never has donors.
        (Counts(1000, 500, 600, 100), (0.5, 0.5), 100, 1),
        (Counts(1000, 500, 600, 100), (0.5, 0.5), 10_000, 1),
        # Each batch shows 20 labels, and needs 80 stand-ins.
        (Counts(1000, 900, 200, 100), (0.5, 0.5), 10_000, 4),
        (Counts(1000, 900, 200, 100), (0.5, 0.5), 100, 4),
        # Classes without rows have no offers to open.
        (Counts(1000, 500, 600, 100), (0.8, 0.2, 0.0), 100, 3),
        (Counts(1000, 1000, 1000, 1000), (0.99, 0.01), 1000, 3),
    ],
)
def test_first_matched_step_by_hand(
    counts: Counts, frequencies: tuple[float, ...], batch_size: int, expected: int
) -> None:
    assert FEWEST == 30
    assert first_matched_step(counts, frequencies, batch_size) == expected


def test_plain_stand_ins_have_one_calibration() -> None:
    found = Calibrations.of_run(data(stand_ins="plain"), PI)
    assert {found.gradients(step) for step in range(20)} == {found.first[0]}
    assert {found.own(step) for step in range(20)} == {found.first[1], found.final}
    assert found.first == found.later


def test_oblivious_stand_ins_fit_from_a_step_on() -> None:
    """Each batch shows 30 labels, 6 of them of the rarer class: after five there are 30."""
    found = Calibrations.of_run(data(), PI)
    plain = Calibrations.of_run(data(stand_ins="plain"), PI)
    assert found.matched_from == 5
    for step in range(5):
        assert found.own(step) == plain.own(step)
        assert found.own(step).mixture.a == pytest.approx(0.2)
    for step in (5, 6, 100):
        assert found.own(step) == found.final
        assert found.own(step).mixture.a == 1


@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("when", ["train", "test"])
def test_gradients_are_those_of_a_bottom_model_that_ignores_stand_ins(
    when: str, *, masking: bool
) -> None:
    """Whatever `masking` says. So they are the same before and after stand-ins fit."""
    labels = {"strategy": "label-random-pos"}
    agreed = {"calibration": when, "labels": labels, "masking": masking}
    found = Calibrations.of_run(data(**agreed), PI)
    assert found.gradients(0) == found.gradients(100)
    # 100 of 600 people with features have a real label.
    assert found.gradients(0).mixture.a == pytest.approx(1 / 6)
    # The top model: 100 shared people of 500, or of 1,000, and a sixth of 400 other ones.
    rows = 500 if masking else 1000
    assert found.own(0).mixture.a == pytest.approx(100 / rows)
    # A quarter of the donors have a label of the model. A sixth of the other labels are real.
    assert SHOWN_SHARE == 0.75
    fitting = 300 / 6 + (100 if when == "train" else 0)
    rows -= 0 if when == "train" else 100
    assert found.own(100).mixture.a == pytest.approx((100 + fitting) / rows)
