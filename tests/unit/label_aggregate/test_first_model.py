"""Tests of the first model on people whose truth is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from florist.common.label_aggregate import first_model as module
from florist.common.label_aggregate.coordinates import Coordinates
from florist.common.label_aggregate.first_model import (
    Aggregate,
    FirstModel,
    fit_first_model,
    solve_first_model,
)
from florist.common.label_aggregate.label_codes import LabelCodes

CARDINALITIES = (5, 20, 40)


class People:
    """Rows of the passive party, of whom half are shared, with labels of known probability."""

    def __init__(self, rows: int, classes: int = 2, rate: float = 0.0, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        columns = [random.integers(0, size, rows) for size in CARDINALITIES]
        self.categories = np.stack(columns, axis=1).astype(np.int32)
        tables = [random.normal(0, 0.7, (size, classes)) for size in CARDINALITIES]
        logits = sum(table[column] for table, column in zip(tables, columns, strict=True))
        logits = logits + np.r_[np.zeros(1), np.full(classes - 1, rate)]
        self.probabilities: npt.NDArray[np.float64] = softmax(logits, axis=1)
        uniform = random.random((rows, 1))
        self.labels = (uniform > self.probabilities.cumsum(axis=1)).sum(axis=1)
        self.labels = np.minimum(self.labels, classes - 1)
        self.is_shared = random.random(rows) < 0.5
        self.random = random
        self.classes = classes

    def aggregate(self, noise: float = 0.0, min_count: int = 1) -> Aggregate:
        coordinates = Coordinates.of_table(self.categories, CARDINALITIES, min_count)
        counts = tuple(np.bincount(self.labels, minlength=self.classes).tolist())
        codes = LabelCodes.for_counts(counts)
        places = coordinates.of(self.categories[self.is_shared])
        sums = np.zeros((coordinates.count, codes.outputs))
        for column in places.T:
            np.add.at(sums, column, codes.table()[self.labels[self.is_shared]])
        sums += self.random.normal(0, noise, sums.shape) if noise else 0
        return Aggregate(
            coordinates, codes, sums.round().astype(np.int64), noise, counts, self.is_shared.mean()
        )

    def auc(self, model: FirstModel) -> float:
        predicted = model.probabilities(self.categories)[:, 1]
        return float(roc_auc_score(self.labels == 1, predicted))


def fitted(people: People, aggregate: Aggregate) -> FirstModel:
    return fit_first_model(aggregate, people.categories, np.random.RandomState(0))


@pytest.mark.parametrize("rate", [0.0, -3.0], ids=["balanced", "rare"])
def test_it_finds_the_truth(rate: float) -> None:
    people = People(20_000, rate=rate)
    model = fitted(people, people.aggregate())
    truth = people.probabilities[:, 1]
    assert np.corrcoef(model.probabilities(people.categories)[:, 1], truth)[0, 1] > 0.93
    assert model.probabilities(people.categories)[:, 1].mean() == pytest.approx(
        people.labels.mean(), rel=0.1
    )


def test_it_is_a_logistic_regression_if_everybody_is_shared() -> None:
    """The gradient of the penalised log-likelihood, with the base rate as offset, is zero."""
    people = People(3000)
    people.is_shared[:] = True
    aggregate = people.aggregate()
    model = solve_first_model(aggregate, people.categories, np.random.RandomState(0), 5.0)
    gradient = 5.0 * model.weights[:, 0].astype(np.float64)
    places = aggregate.coordinates.of(people.categories)
    for row, label in zip(places, people.labels, strict=True):
        logit = np.log(model.rates[1] / model.rates[0]) + model.weights[row, 0].sum()
        gradient[row] += 1 / (1 + np.exp(-logit)) - label
    assert np.abs(gradient).max() < 0.5
    assert np.abs(model.weights).max() > 0.5


def test_several_classes() -> None:
    people = People(30_000, classes=4)
    model = fitted(people, people.aggregate())
    found = model.probabilities(people.categories)
    assert found.shape == (30_000, 4)
    assert found.sum(axis=1) == pytest.approx(np.ones(30_000))
    for label in range(4):
        assert np.corrcoef(found[:, label], people.probabilities[:, label])[0, 1] > 0.9


def test_more_noise_gets_more_regularisation_and_never_a_wild_model() -> None:
    people = People(20_000)
    aucs, penalties = [], []
    for noise in (0.0, 30.0, 300.0):
        model = fitted(people, people.aggregate(noise))
        aucs.append(people.auc(model))
        penalties.append(model.penalty)
    assert penalties[0] <= penalties[1] <= penalties[2]
    assert aucs[0] > aucs[1] > 0.6
    assert np.abs(model.weights).max() < 3


def test_the_choice_is_close_to_the_best_penalty() -> None:
    people = People(20_000, seed=3)
    aggregate = people.aggregate(noise=40.0)
    chosen = people.auc(fitted(people, aggregate))
    every = [
        people.auc(
            solve_first_model(aggregate, people.categories, np.random.RandomState(0), penalty)
        )
        for penalty in module.PENALTIES
    ]
    assert chosen > max(every) - 0.01


def test_a_sample_of_the_rows_gives_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    people = People(20_000)
    aggregate = people.aggregate(noise=10.0)
    whole = fitted(people, aggregate)
    monkeypatch.setattr(module, "CHOICE_ROWS", 4000)
    monkeypatch.setattr(module, "SOLVED_ROWS", 8000)
    part = fitted(people, aggregate)
    assert np.corrcoef(whole.weights[:, 0], part.weights[:, 0])[0, 1] > 0.97


def test_category_weights_are_those_of_their_coordinate() -> None:
    people = People(5000)
    model = fitted(people, people.aggregate(min_count=130))
    weights = model.category_weights()
    assert weights.shape == (sum(CARDINALITIES), 1)
    starts = np.cumsum([0, *CARDINALITIES[:-1]])
    logits = weights[people.categories + starts].sum(axis=1)[:, 0]
    base = np.log(model.rates[1] / model.rates[0])
    expected = 1 / (1 + np.exp(-(base + logits)))
    assert model.probabilities(people.categories)[:, 1] == pytest.approx(expected, abs=1e-5)


def test_the_same_randomness_gives_the_same_model() -> None:
    people = People(3000)
    aggregate = people.aggregate(noise=5.0)
    assert (fitted(people, aggregate).weights == fitted(people, aggregate).weights).all()
