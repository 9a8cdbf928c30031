"""Labels that fit the raw features better than the model's prediction, and what gradients show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attack_tools.shown_predictions import shown_predictions
from florist.common.audit.attacks.posterior_gap import posterior_gap
from florist.common.audit.statistics import evaluate
from tests.unit.audit.views import (
    BATCH,
    auc_of,
    half_real,
    is_at_chance,
    own_features,
    passive,
    with_steps,
)

if TYPE_CHECKING:
    from florist.common.audit.view import PassiveView

Array = npt.NDArray[Any]

SIZE, OWN, WIDTH = 3000, 2400, 6
#: Whether a column of embeddings is added to the logits, so that gradients show it exactly.
EXACT = pytest.mark.parametrize("exact", [False, True], ids=["inferred", "exact"])


def true_probabilities(categories: Array) -> Array:
    effects = np.array([-2.5, -1.0, 0.5, 1.5])
    return np.asarray(1 / (1 + np.exp(1.0 - effects[categories].sum(axis=1) / 1.5)))


def planted(knowledge: float, *, exact: bool) -> tuple[PassiveView, Array, Array]:
    """Return a view, the truth about own UIDs, and the model's probabilities.

    The log odds of the model are `knowledge` times the true ones. Real labels follow the true
    probabilities, synthetic ones the model's.
    """
    random = np.random.default_rng(3)
    categories = random.integers(0, 4, (SIZE, 2))
    is_real, true = half_real(SIZE), true_probabilities(categories)
    odds = np.log(true / (1 - true))
    model = 1 / (1 + np.exp(-(odds.mean() + knowledge * (odds - odds.mean()))))
    labels = (random.random(SIZE) < np.where(is_real, true, model)).astype(float)
    direction = random.normal(size=WIDTH) + 0.1 * random.normal(size=(SIZE, WIDTH))
    gradients = (model - labels)[:, None] * direction
    embeddings = random.normal(size=(SIZE, WIDTH))
    embeddings[:, 0] = np.log(model / (1 - model))
    if exact:
        gradients = np.column_stack([random.normal(size=gradients.shape), model - labels]) / BATCH
        embeddings = np.column_stack([embeddings, embeddings[:, 0]])
    view = passive(
        gradients[None],
        embeddings[None],
        np.arange(OWN),
        own_features(np.zeros((OWN, 0)), categories[:OWN]),
        int(exact),
    )
    return view, is_real[:OWN], model


@EXACT
def test_labels_of_a_poor_model_are_found(*, exact: bool) -> None:
    view, is_real, _ = planted(0.0, exact=exact)
    result = evaluate("posterior-gap", posterior_gap(view), is_real)
    assert result.real + result.synthetic == OWN
    assert result.auc.low > 0.55


@EXACT
def test_it_does_nearly_as_well_as_with_the_true_probabilities(*, exact: bool) -> None:
    view, is_real, model = planted(0.0, exact=exact)
    assert view.features is not None
    true = true_probabilities(view.features.rows.categories)
    label = np.zeros(SIZE, dtype=bool)
    for window in shown_predictions(view, view.is_own()):
        label[window.ranks] = window.labels
    best = np.where(label[:OWN], true / model[:OWN], (1 - true) / (1 - model[:OWN]))
    assert auc_of(posterior_gap(view), is_real) > auc_of(best, is_real) - 0.03


@EXACT
def test_labels_of_a_good_model_are_not_found(*, exact: bool) -> None:
    view, is_real, _ = planted(1.0, exact=exact)
    assert auc_of(posterior_gap(view), is_real) == pytest.approx(0.5, abs=0.04)
    assert is_at_chance(posterior_gap(view))


def test_the_better_the_model_the_less_is_found() -> None:
    found = [
        auc_of(posterior_gap(planted(k, exact=True)[0]), planted(k, exact=True)[1])
        for k in (0.0, 0.5, 1.0)
    ]
    assert found[0] > found[1] + 0.05
    assert found[1] > found[2] + 0.02


def test_it_needs_features_and_two_labels() -> None:
    view, _, _ = planted(0.0, exact=False)
    assert np.isnan(posterior_gap(replace(view, features=None))).all()
    same = passive(
        np.ones((1, 300, 3)), features=own_features(np.ones((300, 1)), np.zeros((300, 0)))
    )
    assert not np.isinf(posterior_gap(same)).any()


@pytest.mark.parametrize("knowledge", [0.0, 0.7])
def test_gradients_of_logits_show_the_models_probabilities(knowledge: float) -> None:
    view, _, model = planted(knowledge, exact=True)
    shown = list(shown_predictions(view, view.is_own()))
    ranks = np.concatenate([window.ranks for window in shown])
    found = np.concatenate([window.probabilities for window in shown])
    assert np.array_equal(np.sort(ranks), np.arange(OWN))
    if knowledge:
        assert np.corrcoef(found, model[ranks])[0, 1] > 0.97
    for window in shown:  # shifted to the rate of the labels
        assert window.probabilities.mean() == pytest.approx(window.labels.mean(), abs=0.01)


def test_lengths_of_gradients_show_the_models_probabilities_approximately() -> None:
    view, _, model = planted(0.7, exact=False)
    shown = list(shown_predictions(view, view.is_own()))
    ranks = np.concatenate([window.ranks for window in shown])
    found = np.concatenate([window.probabilities for window in shown])
    assert np.corrcoef(found, model[ranks])[0, 1] > 0.9


def test_the_size_of_the_whole_batch_gives_the_scale() -> None:
    """Of a batch, a self-audit keeps only some rows."""
    view, _, _ = planted(0.7, exact=True)
    part = [
        replace(
            step,
            ranks=step.ranks[:50],
            gradients=step.gradients[:50],
            embeddings=step.embeddings[:50],
            batch_size=BATCH,
        )
        for step in view.steps
    ]
    whole = {
        rank: value
        for window in shown_predictions(view, view.is_own())
        for rank, value in zip(window.ranks, window.probabilities, strict=True)
    }
    shown = list(shown_predictions(with_steps(view, part), view.is_own()))
    differences = [
        abs(value - whole[rank])
        for window in shown
        for rank, value in zip(window.ranks, window.probabilities, strict=True)
    ]
    assert np.mean(differences) < 0.05
