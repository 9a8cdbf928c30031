"""Attacks of the active party, on embeddings with planted copies and planted changes."""

from __future__ import annotations

import numpy as np
import pytest

from florist.common.audit import attacks_on_embeddings
from florist.common.audit.attacks import ACTIVE_ATTACKS
from florist.common.audit.attacks_on_embeddings import (
    embedding_collision,
    embedding_drift,
    nearest_distances,
)
from florist.common.audit.statistics import evaluate
from tests.unit.audit.views import active, half_real, tells_nothing

SIZE, WIDTH = 600, 6


@pytest.mark.parametrize("block", [1, 100, 2**24])
def test_nearest_by_comparing_all(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks_on_embeddings, "_BLOCK", block)
    points = np.random.default_rng(0).normal(50, 1, size=(80, 4)).astype(np.float32)
    points[70] = points[3]
    chosen = np.array([3, 70, 0, 12, 79])
    everywhere = np.linalg.norm(points[chosen, None].astype(float) - points, axis=2)
    everywhere[np.arange(5), chosen] = np.inf
    found = nearest_distances(points, chosen)
    assert found == pytest.approx(everywhere.min(axis=1))
    assert found[:2].tolist() == [0, 0]


def test_collision_finds_copies_of_rows_of_others() -> None:
    random = np.random.default_rng(0)
    own = np.arange(400)
    is_real = half_real(SIZE)
    copies = own[~is_real[own]]
    rows = random.normal(size=(SIZE, WIDTH))
    rows[copies] = rows[random.integers(400, SIZE, len(copies))]  # donors that are not ours
    embeddings = np.stack([rows, 3 * rows]) + 1e-3 * random.normal(size=(2, SIZE, WIDTH))
    scores = embedding_collision(active(embeddings, uids=own))
    assert scores.shape == own.shape
    assert evaluate("embedding-collision", scores, is_real[own]).auc.value > 0.99


def test_one_embedding_alone_collides_with_nothing() -> None:
    assert np.isnan(embedding_collision(active(np.ones((1, 1, 2))))).all()


def test_drift_finds_features_that_are_drawn_anew() -> None:
    random = np.random.default_rng(0)
    is_real = half_real(SIZE)
    rows = random.normal(size=(SIZE, WIDTH))
    epochs = []
    for _ in range(3):
        shown = np.where(is_real[:, None], rows, rows[random.integers(0, SIZE, SIZE)])
        epochs.append(shown @ random.normal(size=(WIDTH, WIDTH)) + random.normal(size=WIDTH))
    scores = embedding_drift(active(np.stack(epochs)))
    assert evaluate("embedding-drift", scores, is_real).auc.value > 0.99


def test_a_model_that_changes_is_no_drift() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(SIZE, WIDTH))
    embeddings = np.stack([rows, rows @ random.normal(size=(WIDTH, WIDTH)) + 4])
    moved = embeddings + 0.01 * random.normal(size=embeddings.shape)
    assert tells_nothing(embedding_drift(active(moved)))


def test_one_epoch_shows_no_drift() -> None:
    assert np.isnan(embedding_drift(active(np.ones((1, 30, 2))))).all()


@pytest.mark.parametrize("name", ACTIVE_ATTACKS.names)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    view = active(np.random.default_rng(2).normal(size=(3, SIZE, WIDTH)))
    assert tells_nothing(ACTIVE_ATTACKS[name].score(view))
