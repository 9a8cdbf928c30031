"""A new model starts at the class frequencies of the active party's own labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from florist.active_party.calibrations import Calibrations
from florist.active_party.training import start_at_base_rate
from florist.common.data.features import Features
from florist.common.session.union_sizes import UnionSizes
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model
from florist.common.synthetic.calibration import model_output
from florist.common.synthetic.label_strategies import class_frequencies
from florist.common.synthetic.membership import Membership
from florist.common.training.model_factory import make_agreed_active
from florist.common.training.training_data import TrainingData, TrainingTable

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.training.models import ActiveModel

CPU = torch.device("cpu")
#: Of 300 UIDs, each party has 200 and both have 100.
ROWS, UNION = 200, 300


def training_data(
    classes_of_rows: npt.NDArray[np.int64], *, own: bool, **agreed: object
) -> TrainingData:
    features = Features(np.zeros((ROWS, 3), np.float32), np.zeros((ROWS, 0), np.int32))
    table = TrainingTable(
        Membership.of(np.arange(ROWS), UNION),
        UnionSizes(ROWS, ROWS, UNION),
        features if own else None,
        classes_of_rows,
    )
    agreement = TrainingAgreement.model_validate({"cut_width": 16, **agreed})
    return TrainingData(agreement.resolved(UNION), CPU, table, None)


def started(data: TrainingData, seed: int = 1) -> ActiveModel:
    model = make_agreed_active(
        data.agreement,
        Model(hidden=[16, 16], tower=[16]),
        numeric=3 if data.train.features is not None else 0,
        cardinalities=(),
        device=CPU,
        seed=seed,
    )
    start_at_base_rate(model, data)
    return model


def labels_with(*counts: int) -> npt.NDArray[np.int64]:
    assert sum(counts) == ROWS
    return np.repeat(np.arange(len(counts)), counts)


def first_predictions(model: ActiveModel) -> Tensor:
    random = torch.Generator().manual_seed(0)
    # The peer's wide part starts at 0.
    wide = torch.zeros(500, len(model.top.output.bias))
    embeddings = torch.cat((torch.rand(500, 16, generator=random), wide), 1)
    own = () if model.tower is None else (embeddings[:, :3], torch.zeros(500, 0, dtype=torch.int64))
    with torch.no_grad():
        return model_output(model(embeddings, *own))


@pytest.mark.parametrize("calibration", ["none", "train", "test"])
@pytest.mark.parametrize("own", [False, True])
def test_the_first_predictions_have_the_rate_of_the_labels(own: bool, calibration: str) -> None:  # noqa: FBT001
    for seed in range(5):
        data = training_data(labels_with(198, 2), own=own, calibration=calibration)
        predictions = first_predictions(started(data, seed))
        assert float(predictions.mean()) == pytest.approx(0.01, rel=0.25)
        assert float(predictions.std()) < 0.001


def test_the_first_predictions_of_several_classes() -> None:
    data = training_data(labels_with(150, 40, 10), own=False, classes=3)
    assert first_predictions(started(data)).mean(0).numpy() == pytest.approx(
        [0.75, 0.2, 0.05], rel=0.25
    )


@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("calibration", ["none", "train", "test"])
def test_the_bias_is_the_base_rate_of_what_the_model_learns(
    calibration: str,
    masking: bool,  # noqa: FBT001
) -> None:
    """D starts at π; D' starts at a·π + b, which `label-majority` lowers unless masked."""
    data = training_data(
        labels_with(160, 40),
        own=False,
        calibration=calibration,
        masking=masking,
        labels={"strategy": "label-majority"},
        stand_ins="plain",
    )
    bias = started(data).top.output.bias.detach()
    shifted = calibration != "train" and not masking
    # A third of the union has no label, and 0 instead.
    assert float(bias.sigmoid()) == pytest.approx(0.2 * 2 / 3 if shifted else 0.2)
    if calibration != "none":
        own = Calibrations.of_run(data, class_frequencies(labels_with(160, 40))).final
        assert float(own.predict(bias)) == pytest.approx(0.2)


def test_the_prior_starts_at_the_class_frequencies() -> None:
    data = training_data(labels_with(190, 10), own=True, calibration="test", masking=True)
    prior = started(data).prior
    assert prior is not None
    assert float(prior.output.bias.detach().sigmoid()) == pytest.approx(0.05)


@pytest.mark.parametrize("counts", [(200, 0), (0, 200), (100, 100, 0)])
def test_a_class_without_rows_counts_as_half_a_row(counts: tuple[int, ...]) -> None:
    data = training_data(labels_with(*counts), own=False, classes=len(counts))
    bias = started(data).top.output.bias.detach()
    rates = bias.softmax(0) if len(counts) > 2 else torch.cat((-bias, bias)).sigmoid()
    expected = np.maximum(np.array(counts) / ROWS, 0.5 / ROWS)
    assert rates.numpy() == pytest.approx(expected / expected.sum(), rel=1e-4)
