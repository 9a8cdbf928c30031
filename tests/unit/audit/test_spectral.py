"""The spectral attack against an SVD, and on planted outliers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.audit.attacks.spectral import outlyingness, spectral, spectral_auc
from florist.common.audit.statistics import evaluate
from florist.common.evaluation.metrics import auc
from tests.unit.audit.views import active, half_real, is_at_chance, passive

SIZE, WIDTH = 600, 5


@given(st.integers(0, 1000), st.integers(2, 40), st.integers(1, 6))
def test_scores_are_those_of_an_svd(seed: int, rows: int, width: int) -> None:
    points = np.random.default_rng(seed).normal(size=(rows, width)) * np.arange(1, width + 1)
    centred = points - points.mean(axis=0)
    top = np.linalg.svd(centred)[2][0]
    assert outlyingness(points) == pytest.approx(np.abs(centred @ top), abs=1e-6)


def test_the_score_of_a_uid_is_a_mean_over_epochs() -> None:
    """Scores are relative to the batch: an epoch with large gradients does not dominate."""
    gradients = np.random.default_rng(0).normal(size=(3, 250, 4)) * np.array([[[1]], [[50]], [[2]]])
    view = passive(gradients, uids=np.array([7, 100]))
    expected = dict.fromkeys([7, 100], 0.0)
    for step in view.steps:
        scores = outlyingness(step.gradients.astype(np.float64))
        for uid in expected:
            expected[uid] += float(scores[step.ranks == uid].sum() / scores.mean()) / 3
    assert spectral(view) == pytest.approx([-expected[7], -expected[100]])


def test_it_finds_outliers_and_agrees_with_the_papers_figure() -> None:
    random = np.random.default_rng(0)
    is_real = random.random(SIZE) < 0.8
    gradients = random.normal(size=(2, SIZE, WIDTH))
    gradients[:, ~is_real] += 10
    view = passive(gradients)
    assert evaluate("spectral", spectral(view), is_real).auc.value > 0.99
    assert spectral_auc(view, is_real) > 0.99
    by_hand = [
        auc(~is_real[step.ranks], outlyingness(step.gradients.astype(np.float64)))
        for step in view.steps
    ]
    assert spectral_auc(view, is_real) == pytest.approx(np.mean(by_hand))


def test_it_finds_no_leak_in_random_data() -> None:
    view = passive(np.random.default_rng(0).normal(size=(2, SIZE, WIDTH)))
    assert is_at_chance(spectral(view))
    assert spectral_auc(view, half_real(SIZE)) == pytest.approx(0.5, abs=0.05)


def test_the_papers_figure_needs_both_kinds() -> None:
    assert np.isnan(spectral_auc(passive(np.ones((1, 20, 2))), np.ones(20, dtype=bool)))


def test_the_active_party_appends_labels_to_embeddings() -> None:
    labels = np.arange(100) % 10 == 0
    flat = np.zeros((1, 100, 2))
    distances = np.abs(labels - 0.1)
    found = spectral(active(flat, labels.astype(float)))
    assert found == pytest.approx(-distances / distances.mean())
    unknown = np.where(np.arange(100) < 50, labels, np.nan)
    scores = spectral(active(flat, unknown))
    assert scores[:50] == pytest.approx(-distances[:50] / distances[:50].mean() * 2)
    assert scores[50:] == pytest.approx(np.zeros(50), abs=1e-6)
