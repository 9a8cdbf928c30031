"""The model on own data alone: it learns, is repeatable, and without features is the base rate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.common.data.features import Features
from florist.common.evaluation import metrics
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.training import Model, Optimiser
from florist.common.training.own_model import OwnModelSetup, train_own_model


def setup(**agreed: object) -> OwnModelSetup:
    return OwnModelSetup(
        TrainingAgreement.model_validate({"epochs": 2, **agreed}),
        Model(hidden=[16], tower=[16]),
        Optimiser(),
        numeric=2,
        cardinalities=(3,),
        device=torch.device("cpu"),
    )


def data(rows: int, classes: int = 2) -> tuple[Features, np.ndarray]:
    random = np.random.default_rng(rows)
    numbers = random.random((rows, 2)).astype(np.float32)
    categories = random.integers(0, 3, (rows, 1)).astype(np.int32)
    score = 4 * numbers[:, 0] + categories[:, 0] + random.logistic(size=rows)
    cuts = np.quantile(score, np.arange(1, classes) / classes)
    return Features(numbers, categories), np.searchsorted(cuts, score).astype(np.int64)


@pytest.mark.parametrize("cut_width", [0, 16])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_learns_from_its_rows(classes: int, cut_width: int) -> None:
    features, labels = data(3000, classes)
    model = train_own_model(
        setup(classes=classes, cut_width=cut_width), features, labels, NoProgress()
    )
    others, truth = data(1000, classes)
    predictions = model.predict(others, 1000)
    assert predictions.shape == ((1000,) if classes == 2 else (1000, classes))
    assert metrics.auc(truth, predictions) > 0.7
    again = train_own_model(
        setup(classes=classes, cut_width=cut_width), features, labels, NoProgress()
    )
    np.testing.assert_array_equal(again.predict(others, 1000), predictions)


def test_batches_smaller_than_the_table_cover_every_row_once_per_epoch() -> None:
    features, labels = data(130)
    counted: list[int] = []

    class Counting(NoProgress):
        def advance(self, done: int) -> None:
            counted.append(done)

    train_own_model(setup(batch_size=64), features, labels, Counting())
    assert counted == [64, 64, 2, 64, 64, 2]


@pytest.mark.parametrize("classes", [2, 3])
def test_without_features_it_predicts_the_base_rate(classes: int) -> None:
    _, labels = data(300, classes)
    model = train_own_model(setup(classes=classes), None, labels, NoProgress())
    predictions = model.predict(None, 50)
    rates = np.bincount(labels, minlength=classes) / 300
    np.testing.assert_allclose(predictions, np.full(50, rates[1]) if classes == 2 else [rates] * 50)
    assert metrics.auc(np.arange(50) % classes, predictions) == 0.5


def test_a_single_class_and_a_single_row() -> None:
    features, labels = data(1)
    model = train_own_model(setup(), features, labels, NoProgress())
    assert np.isfinite(model.predict(features, 1)).all()
    with pytest.raises(ConfigurationError, match="no labels"):
        train_own_model(setup(), None, labels[:0], NoProgress())
