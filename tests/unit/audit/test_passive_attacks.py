"""Attacks by the passive party, on gradients whose labels are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attack_tools.inferred_labels import (
    cosines,
    inferred_labels,
    shown_classes,
)
from florist.common.audit.attacks import PASSIVE_ATTACKS
from florist.common.audit.attacks.flips import flips
from florist.common.audit.attacks.gradient_direction import gradient_direction
from florist.common.audit.attacks.gradient_norm import gradient_norm
from florist.common.audit.attacks.label_likelihood import inferred_label_likelihood
from florist.common.audit.attacks.memorisation import label_memorisation
from florist.common.audit.statistics import evaluate
from tests.unit.audit.aggregates import random_aggregate
from tests.unit.audit.views import (
    BATCH,
    half_real,
    in_float16,
    is_at_chance,
    passive,
    random_features,
    with_steps,
)

if TYPE_CHECKING:
    from florist.common.audit.view import PassiveView

Array = npt.NDArray[Any]

SIZE, WIDTH, EPOCHS = 1200, 6, 3


def gradients_of(labels: Array, predictions: Array | float = 0.3, seed: int = 0) -> Array:
    """Return gradients like a top model's: all along one direction, which changes slowly."""
    random = np.random.default_rng(seed)
    epochs, size = labels.shape
    directions = random.normal(size=WIDTH) + 0.2 * random.normal(size=(epochs, 1, WIDTH))
    wobble = 0.2 * random.normal(size=(epochs, size, WIDTH))
    return np.asarray((predictions - labels)[..., None] * (directions + wobble))


def drawn_labels(rate: Array | float = 0.3, seed: int = 3) -> Array:
    return (np.random.default_rng(seed).random(SIZE) < rate).astype(float)


def repeated(labels: Array) -> Array:
    return np.tile(labels, (EPOCHS, 1))


def test_labels_are_inferred_from_directions() -> None:
    labels = drawn_labels()
    for ranks, inferred in inferred_labels(passive(gradients_of(repeated(labels)))):
        assert np.array_equal(inferred, labels[ranks] == 1)


def test_gradients_of_logits_show_labels_exactly() -> None:
    """Whatever the other columns say."""
    labels = drawn_labels()
    random = np.random.default_rng(2)
    gradients = random.normal(size=(1, SIZE, WIDTH))
    gradients[0, :, -1] = 1e-3 * (random.uniform(0.05, 0.6, SIZE) - labels)
    for ranks, inferred in inferred_labels(passive(gradients, logit_columns=1)):
        assert np.array_equal(inferred, labels[ranks] == 1)


def test_gradients_of_logits_show_all_classes() -> None:
    random = np.random.default_rng(2)
    labels = random.integers(0, 3, SIZE)
    gradients = random.normal(size=(1, SIZE, WIDTH))
    gradients[0, :, -3:] = random.dirichlet([1, 1, 1], SIZE) - np.eye(3)[labels]
    view = passive(gradients, logit_columns=3)
    for ranks, classes in shown_classes(view):
        assert np.array_equal(classes, labels[ranks])


def test_a_zero_gradient_has_cosine_zero() -> None:
    gradients = gradients_of(repeated(drawn_labels()))
    gradients[:, :5] = 0
    view = passive(gradients)
    for step, cosine in zip(view.steps, cosines(view), strict=True):
        assert np.isfinite(cosine).all()
        assert (cosine[step.ranks < 5] == 0).all()


def test_direction_finds_positives_among_synthetic_negatives() -> None:
    is_real = half_real(SIZE)
    labels = np.where(is_real, drawn_labels(), 0)
    scores = gradient_direction(passive(gradients_of(repeated(labels))))
    result = evaluate("gradient-direction", scores, is_real)
    positives = labels[is_real].mean()
    assert result.auc.value > 0.6
    assert result.finds_real[0.01].value == pytest.approx(positives, abs=0.02)


def test_norm_finds_labels_that_do_not_surprise() -> None:
    is_real = half_real(SIZE)
    labels = drawn_labels()
    predictions = np.where(is_real, 0.5, np.abs(labels - 0.1))
    scores = gradient_norm(passive(gradients_of(repeated(labels), predictions)))
    assert evaluate("gradient-norm", scores, is_real).auc.value > 0.95


def complete(gradients: Array, labels: Array) -> PassiveView:
    """Return a view with everything that any attack needs, and a column that shows the logits."""
    random = np.random.default_rng(11)
    shown = (0.3 + 0.1 * random.random(labels.shape) - labels)[..., None] / BATCH
    embeddings = random.normal(size=(*labels.shape, 4))
    own = np.arange(SIZE - 150)
    features = random_features(len(own))
    view = passive(np.concatenate([gradients, shown], axis=2), embeddings, own, features, 1)
    return replace(
        view,
        known_stand_ins=np.arange(SIZE - 100, SIZE),
        aggregate=random_aggregate(features),
    )


@pytest.mark.parametrize("name", PASSIVE_ATTACKS.names)
def test_no_attack_finds_a_leak_in_random_data(name: str) -> None:
    labels = repeated(drawn_labels())
    assert is_at_chance(PASSIVE_ATTACKS[name].score(complete(gradients_of(labels), labels)))


def test_flips_are_counted_between_epochs() -> None:
    labels = np.tile(np.arange(40) < 12, (5, 1)).astype(float)
    labels[:, 0] = [1, 1, 1, 1, 1]
    labels[:, 1] = [1, 0, 1, 0, 1]
    labels[:, 2] = [0, 0, 1, 1, 1]
    labels[:, 30] = [0, 0, 1, 0, 0]
    scores = flips(passive(gradients_of(labels)))
    assert scores[[0, 1, 2, 30]].tolist() == [0, -1, -0.25, -0.5]
    assert not scores[[*range(3, 30), *range(31, 40)]].any()


def test_one_epoch_has_no_flips() -> None:
    assert np.isnan(flips(passive(gradients_of(drawn_labels()[None])))).all()


def test_flips_find_labels_that_are_redrawn() -> None:
    is_real = half_real(SIZE)
    drawn = np.stack([drawn_labels(seed=seed) for seed in range(EPOCHS)])
    labels = np.where(is_real, drawn[0], drawn)
    result = evaluate("flips", flips(passive(gradients_of(labels))), is_real)
    assert result.finds_synthetic[0.01].value > 0.5


def test_likelihood_finds_labels_that_ignore_the_features() -> None:
    is_real = half_real(SIZE)
    features = np.random.default_rng(5).normal(size=(SIZE, 3))
    informed = drawn_labels(1 / (1 + np.exp(1.5 - 4 * features[:, 0])))
    labels = np.where(is_real, informed, drawn_labels(informed.mean(), seed=8))
    turning = np.stack([features, features[:, ::-1], -features])  # a different one per epoch
    uids = np.arange(0, SIZE, 3)
    view = passive(gradients_of(repeated(labels)), turning, uids)
    result = evaluate("label-likelihood", inferred_label_likelihood(view), is_real[uids])
    assert result.real + result.synthetic == len(uids)
    assert result.auc.low > 0.55


def test_memorisation_finds_labels_that_surprise_less_each_epoch() -> None:
    is_real = half_real(SIZE)
    labels = repeated(drawn_labels())
    learned = np.where(is_real, 1, 0) * np.array([[0.0], [0.3], [0.6]])
    predictions = 0.3 + learned * (labels - 0.3)
    result = evaluate(
        "any", label_memorisation(passive(gradients_of(labels, predictions))), is_real
    )
    assert result.auc.low > 0.8
    assert np.isnan(label_memorisation(passive(gradients_of(labels[:1])))).all()


def test_likelihood_is_relative_to_the_frequency_of_a_label() -> None:
    """A rare label that fits counts more than a frequent one, and is not taken for a bad fit."""
    features = np.random.default_rng(5).normal(size=(SIZE, 3))
    labels = (features[:, 0] > 1).astype(float)
    view = passive(gradients_of(repeated(labels)), np.tile(features, (EPOCHS, 1, 1)))
    scores = inferred_label_likelihood(view)
    assert scores[labels == 1].mean() > scores[labels == 0].mean() > 0


@pytest.mark.parametrize("name", PASSIVE_ATTACKS.names)
def test_half_precision_is_enough(name: str) -> None:
    labels = np.stack([drawn_labels(seed=seed) for seed in range(EPOCHS)])
    view = complete(gradients_of(labels), labels)
    exact, rounded = (PASSIVE_ATTACKS[name].score(v) for v in (view, in_float16(view)))
    assert rounded.dtype == np.float64
    known = ~np.isnan(exact)
    assert known.sum() > 900
    assert np.corrcoef(exact[known], rounded[known])[0, 1] > 0.99


@pytest.mark.parametrize("name", PASSIVE_ATTACKS.names)
def test_interrupted_runs_are_scored(name: str) -> None:
    labels = repeated(drawn_labels())
    view = complete(gradients_of(labels), labels)
    for steps in (0, 1, SIZE // BATCH + 2):
        cut = with_steps(view, view.steps[:steps])
        scores = PASSIVE_ATTACKS[name].score(cut)
        assert scores.shape == view.uids.shape
        assert not np.isinf(scores).any()


def test_likelihood_needs_both_labels() -> None:
    view = passive(gradients_of(np.zeros((1, 50))))
    assert np.isnan(inferred_label_likelihood(view)).all()
