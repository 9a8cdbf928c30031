"""Attacks by the active party, on embeddings with planted copies, changes and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attack_tools import nearest_neighbours
from florist.common.audit.attacks import ACTIVE_ATTACKS
from florist.common.audit.attacks.embedding_collision import embedding_collision
from florist.common.audit.attacks.embedding_donor import embedding_donor
from florist.common.audit.attacks.embedding_drift import embedding_drift
from florist.common.audit.attacks.embedding_twin import embedding_twin
from florist.common.audit.attacks.label_likelihood import own_label_likelihood
from florist.common.audit.attacks.memorisation import feature_memorisation
from florist.common.audit.statistics import evaluate
from tests.unit.audit.views import (
    BATCH,
    active,
    auc_of,
    half_real,
    in_float16,
    is_at_chance,
    random_features,
    with_steps,
)

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView

Array = npt.NDArray[Any]

SIZE, OWN, WIDTH = 900, 600, 12


def copied(noise: float, epochs: int = 3) -> tuple[Array, Array, Array]:
    """Embeddings in which the synthetic ones of the first `OWN` UIDs copy others.

    Also the truth, and the donor of each copy. Rows differ in three directions only; each epoch has
    weights of its own, and noise on all.
    """
    random = np.random.default_rng(0)
    is_real = half_real(SIZE) | (np.arange(SIZE) >= OWN)
    copies = np.flatnonzero(~is_real)
    rows = random.normal(size=(SIZE, 3))
    donors = random.choice(np.flatnonzero(is_real), len(copies))
    rows[copies] = rows[donors]
    weights = random.normal(size=(3, WIDTH)) + 0.3 * random.normal(size=(epochs, 3, WIDTH))
    embeddings = rows @ weights
    deviation = embeddings.std(axis=1, keepdims=True)
    noisy = embeddings + noise * deviation * random.normal(size=embeddings.shape)
    return noisy, is_real, donors


def test_collision_finds_copies_but_suspects_donors_too() -> None:
    embeddings, is_real, donors = copied(noise=1e-3)
    own = np.arange(OWN)
    scores = embedding_collision(active(embeddings, uids=own))
    assert scores.shape == own.shape
    has_twin = ~is_real[own] | np.isin(own, donors)
    assert auc_of(-scores, has_twin) > 0.99
    # Real people who were copied look like copies, so these pairs are ties.
    copied_share = np.isin(own, donors)[is_real[own]].mean()
    assert auc_of(scores, is_real[own]) == pytest.approx(1 - copied_share / 2, abs=0.05)


def test_a_twin_among_the_peers_uids_proves_a_copy() -> None:
    embeddings, is_real, donors = copied(noise=1e-3)
    own = np.arange(OWN)
    result = evaluate("any", embedding_donor(active(embeddings, uids=own)), is_real[own])
    share = (donors >= OWN).mean()
    assert result.finds_synthetic[0.01].value == pytest.approx(share, abs=0.05)
    assert result.finds_real[0.01].value < 0.05


def test_several_epochs_average_out_noise() -> None:
    embeddings, is_real, _ = copied(noise=0.2, epochs=4)
    own = np.arange(OWN)
    view = active(embeddings, uids=own)
    by_epoch, together = embedding_collision(view), embedding_twin(view)
    assert auc_of(by_epoch, is_real[own]) < 0.65
    assert auc_of(together, is_real[own]) > auc_of(by_epoch, is_real[own]) + 0.05
    assert auc_of(embedding_donor(view), is_real[own]) > 0.63


def test_donors_are_found_within_a_single_epoch() -> None:
    embeddings, is_real, _ = copied(noise=1e-3, epochs=1)
    view = active(embeddings, uids=np.arange(OWN))
    assert auc_of(embedding_donor(view), is_real[:OWN]) > 0.65
    assert np.isnan(embedding_twin(view)).all()


def test_donors_need_uids_that_only_the_peer_has() -> None:
    assert np.isnan(embedding_donor(active(copied(0.1)[0]))).all()


def test_too_few_embeddings_have_no_collision_score() -> None:
    for size in (1, 2, 10):
        view = active(np.ones((1, size, 2)))
        assert np.isnan(embedding_collision(view)).all()
        assert np.isnan(embedding_donor(view)).all()


def test_large_views_are_scored_on_a_fixed_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_neighbours, "JUDGED", 50)
    embeddings, _, _ = copied(0.1)
    view = active(embeddings, uids=np.arange(OWN))
    judged = [~np.isnan(attack(view)) for attack in (embedding_collision, embedding_donor)]
    assert judged[0].sum() == 50
    assert np.array_equal(judged[0], judged[1])
    monkeypatch.undo()
    everyone = embedding_collision(view)
    monkeypatch.setattr(nearest_neighbours, "JUDGED", 50)
    assert embedding_collision(view)[judged[0]] == pytest.approx(everyone[judged[0]])


def test_drift_finds_features_that_are_redrawn() -> None:
    random = np.random.default_rng(0)
    is_real = half_real(SIZE)
    rows = random.normal(size=(SIZE, WIDTH))
    epochs = []
    for _ in range(3):
        shown = np.where(is_real[:, None], rows, rows[random.integers(0, SIZE, SIZE)])
        epochs.append(shown @ random.normal(size=(WIDTH, WIDTH)) + random.normal(size=WIDTH))
    scores = embedding_drift(active(np.stack(epochs)))
    assert evaluate("embedding-drift", scores, is_real).auc.value > 0.99


def test_a_changing_model_is_not_drift() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(SIZE, WIDTH))
    embeddings = np.stack([rows, rows @ random.normal(size=(WIDTH, WIDTH)) + 4])
    moved = embeddings + 0.01 * random.normal(size=embeddings.shape)
    assert is_at_chance(embedding_drift(active(moved)))


def test_one_epoch_has_no_drift_score() -> None:
    assert np.isnan(embedding_drift(active(np.ones((1, 30, 2))))).all()


def labelled(strengths: tuple[float, ...]) -> tuple[Array, Array, Array]:
    """Return embeddings whose real rows depend on the label, with a strength per epoch."""
    random = np.random.default_rng(4)
    is_real = half_real(SIZE)
    labels = (random.random(SIZE) < 0.3).astype(float)
    rows = random.normal(size=(len(strengths), SIZE, WIDTH))
    hint = np.where(is_real, labels, random.permutation(labels)) - 0.3
    rows[..., 0] += np.asarray(strengths)[:, None] * hint
    return rows, labels, is_real


def test_likelihood_finds_features_that_fit_the_label() -> None:
    rows, labels, is_real = labelled((3, 3))
    scores = own_label_likelihood(active(rows, labels))
    assert evaluate("any", scores, is_real).auc.low > 0.6
    # The rarer a label, the more a good fit counts.
    assert scores[is_real & (labels == 1)].mean() > scores[is_real & (labels == 0)].mean()


def test_memorisation_finds_rows_that_fit_better_each_epoch() -> None:
    rows, labels, is_real = labelled((0, 1, 3))
    assert evaluate("any", feature_memorisation(active(rows, labels)), is_real).auc.low > 0.55
    rows, labels, is_real = labelled((3, 3))
    assert evaluate("any", feature_memorisation(active(rows, labels)), is_real).auc.low < 0.5
    assert np.isnan(feature_memorisation(active(rows[:1], labels))).all()


def test_without_labels_there_are_no_scores() -> None:
    view = active(np.zeros((2, 50, 3)), np.full(50, np.nan))
    assert np.isnan(own_label_likelihood(view)).all()
    assert np.isnan(feature_memorisation(view)).all()


def complete(rows: Array, labels: Array) -> ActiveView:
    """Return a view with everything that any attack needs."""
    view = active(rows, labels, np.arange(OWN), random_features(OWN))
    return replace(view, known_stand_ins=np.arange(OWN, OWN + 100))


@pytest.mark.parametrize("name", ACTIVE_ATTACKS.names)
def test_no_attack_finds_a_leak_in_random_data(name: str) -> None:
    random = np.random.default_rng(2)
    rows, labels = random.normal(size=(3, SIZE, WIDTH)), random.random(SIZE) < 0.3
    view = complete(rows, labels)
    assert is_at_chance(ACTIVE_ATTACKS[name].score(view))


@pytest.mark.parametrize("name", ACTIVE_ATTACKS.names)
def test_half_precision_is_enough(name: str) -> None:
    rows, labels, _ = labelled((1, 2))
    view = complete(40 * rows, labels)
    exact, rounded = (ACTIVE_ATTACKS[name].score(v) for v in (view, in_float16(view)))
    assert rounded.dtype == np.float64
    assert np.corrcoef(exact, rounded)[0, 1] > 0.99


@pytest.mark.parametrize("name", ACTIVE_ATTACKS.names)
def test_interrupted_runs_are_scored(name: str) -> None:
    rows, labels, _ = labelled((1, 2))
    view = complete(rows, labels)
    for steps in (0, 1, SIZE // BATCH + 2):
        cut = with_steps(view, view.steps[:steps])
        scores = ACTIVE_ATTACKS[name].score(cut)
        assert scores.shape == view.uids.shape
        assert not np.isinf(scores).any()
