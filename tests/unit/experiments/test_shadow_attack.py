"""What a shadow run is made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.experiments.shadow_attack import guessed_features, guessed_labels, shadow_split
from tests.unit.audit.views import active, passive


@given(st.integers(0, 500), st.integers(1, 300), st.integers(0, 300), st.integers(0, 300))
def test_all_are_dealt_out_in_the_real_shares(rows: int, both: int, ours: int, theirs: int) -> None:
    union = both + ours + theirs
    split = shadow_split(rows, both + ours, both + theirs, union)
    assert np.array_equal(np.union1d(split.active, split.passive), np.arange(rows))
    for part, whole in (
        (len(split.active), both + ours),
        (len(split.passive), both + theirs),
        (len(np.intersect1d(split.active, split.passive)), both),
    ):
        assert part == pytest.approx(rows * whole / union, abs=1)


def test_another_seed_deals_others() -> None:
    first, again, other = (shadow_split(100, 60, 70, 90, seed).active for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("union", [59, 131])
def test_impossible_sizes_are_refused(union: int) -> None:
    with pytest.raises(ValueError, match="no union"):
        shadow_split(100, 60, 70, union)


def test_labels_are_those_seen_most_often() -> None:
    labels = np.tile(np.arange(40) < 12, (3, 1)).astype(float)
    labels[:, 0] = [1, 0, 1]
    labels[:, 1] = [0, 0, 1]
    gradients = (0.3 - labels)[..., None] * np.array([1.0, 2.0, -1.0])
    found = guessed_labels(passive(gradients, uids=np.array([0, 1, 2, 30])))
    assert found.tolist() == [1, 0, 1, 0]


def test_features_are_mean_embeddings() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(100, 4))
    view = active(np.stack([rows, 5 * rows + 3]), uids=np.array([4, 50]))
    expected = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    assert guessed_features(view) == pytest.approx(expected[[4, 50]], abs=1e-5)
