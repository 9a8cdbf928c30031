"""Own dummies as examples of the peer's synthetic data; and a network against a regression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attacks.known_stand_ins import (
    features_unlike_stand_ins,
    labels_unlike_stand_ins,
)
from florist.common.audit.attacks.label_likelihood import own_label_likelihood
from florist.common.audit.attacks.likelihood_mlp import likelihood_mlp
from florist.common.audit.statistics import evaluate
from tests.unit.audit.views import (
    BATCH,
    active,
    auc_of,
    half_real,
    is_at_chance,
    passive,
    with_steps,
)

Array = npt.NDArray[Any]

SIZE, OWN, WIDTH = 3000, 2400, 6
DUMMIES = np.arange(OWN, SIZE)


def truth() -> Array:
    """Half of the own UIDs are real; dummies are not."""
    return half_real(SIZE) & (np.arange(SIZE) < OWN)


def labels_of(rate: float = 0.3, seed: int = 1) -> Array:
    return (np.random.default_rng(seed).random(SIZE) < rate).astype(float)


def test_embeddings_like_those_of_dummies_are_found() -> None:
    is_real, random = truth(), np.random.default_rng(0)
    rows = random.normal(size=(1, SIZE, WIDTH)) * np.where(is_real, 1.0, 1.5)[:, None]
    view = replace(active(rows, labels_of(), np.arange(OWN)), known_stand_ins=DUMMIES)
    result = evaluate("any", features_unlike_stand_ins(view), is_real[:OWN])
    assert result.real + result.synthetic == OWN
    assert result.auc.low > 0.65


def test_embeddings_that_fit_the_label_are_unlike_those_of_dummies() -> None:
    """The labels of dummies are not known."""
    is_real, random, labels = truth(), np.random.default_rng(0), labels_of(0.5)
    hint = np.where(is_real, labels, random.permutation(labels))
    rows = random.normal(size=(1, SIZE, WIDTH))
    rows[..., 0] += 3 * hint
    shown = np.where(np.arange(SIZE) < OWN, labels, np.nan)
    view = replace(active(rows, shown, np.arange(OWN)), known_stand_ins=DUMMIES)
    assert auc_of(features_unlike_stand_ins(view), is_real[:OWN]) > 0.62


def test_embeddings_unlike_those_of_dummies_without_a_leak_are_at_chance() -> None:
    random = np.random.default_rng(0)
    view = active(random.normal(size=(1, SIZE, WIDTH)), labels_of(), np.arange(OWN))
    assert is_at_chance(features_unlike_stand_ins(replace(view, known_stand_ins=DUMMIES)))


def shown_gradients(predictions: Array, labels: Array) -> Array:
    random = np.random.default_rng(6)
    noise = random.normal(size=(SIZE, 3))
    return np.column_stack([noise, predictions - labels])[None] / BATCH


def test_labels_like_those_of_dummies_are_found() -> None:
    """Synthetic labels ignore the prediction, real ones follow it."""
    is_real, random = truth(), np.random.default_rng(0)
    predictions = random.uniform(0.05, 0.95, SIZE)
    rates = np.where(is_real, predictions, 0.5)
    labels = (random.random(SIZE) < rates).astype(float)
    view = passive(
        shown_gradients(predictions, labels),
        random.normal(size=(1, SIZE, 4)),
        np.arange(OWN),
        logit_columns=1,
    )
    view = replace(view, known_stand_ins=DUMMIES)
    assert auc_of(labels_unlike_stand_ins(view), is_real[:OWN]) > 0.6
    unrelated = shown_gradients(predictions, labels_of(0.5, seed=8))
    steps = [
        replace(step, gradients=unrelated[0, step.ranks].astype(np.float32)) for step in view.steps
    ]
    assert is_at_chance(labels_unlike_stand_ins(with_steps(view, steps)))


def test_a_few_dummies_are_not_enough() -> None:
    view = active(np.random.default_rng(0).normal(size=(1, SIZE, WIDTH)), labels_of())
    few = replace(view, known_stand_ins=DUMMIES[:5])
    assert np.isnan(features_unlike_stand_ins(few)).all()
    assert np.isnan(features_unlike_stand_ins(view)).all()
    seen = passive(np.random.default_rng(0).normal(size=(1, SIZE, WIDTH)))
    assert np.isnan(labels_unlike_stand_ins(replace(seen, known_stand_ins=DUMMIES[:5]))).all()


# --- likelihood-mlp ---


def crossed(*, leak: bool) -> tuple[Array, Array, Array]:
    """Return embeddings in which the label depends on two columns together, on neither alone."""
    random, is_real = np.random.default_rng(4), half_real(2 * SIZE)
    rows = random.normal(size=(1, 2 * SIZE, WIDTH))
    rows[..., :2] = np.sign(rows[..., :2]) + 0.2 * rows[..., :2]
    fits = (rows[0, :, 0] * rows[0, :, 1] > 0).astype(float)
    follows = is_real if leak else np.zeros_like(is_real)
    return rows, np.where(follows, fits, random.permutation(fits)), is_real


def test_a_network_finds_what_a_regression_misses() -> None:
    rows, labels, is_real = crossed(leak=True)
    view = active(rows, labels)
    assert auc_of(likelihood_mlp(view), is_real) > 0.65
    assert auc_of(own_label_likelihood(view), is_real) == pytest.approx(0.5, abs=0.03)


def test_a_network_finds_nothing_without_a_leak() -> None:
    rows, labels, _ = crossed(leak=False)
    assert is_at_chance(likelihood_mlp(active(rows, labels)))


def test_a_network_gives_the_same_scores_again() -> None:
    rows, labels, _ = crossed(leak=True)
    first, again = (likelihood_mlp(active(rows[:, :600], labels[:600])) for _ in range(2))
    assert np.array_equal(first, again)


def test_a_network_needs_two_labels() -> None:
    rows, _, _ = crossed(leak=True)
    for labels in (np.zeros(600), np.full(600, np.nan)):
        assert np.isnan(likelihood_mlp(active(rows[:, :600], labels))).all()
