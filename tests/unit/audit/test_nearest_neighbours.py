"""Nearest neighbours against brute force, and the frames in which they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from florist.common.audit.attack_tools import embedding_frames, nearest_neighbours
from florist.common.audit.attack_tools.embedding_frames import all_epochs, one_epoch, standardised
from florist.common.audit.attack_tools.nearest_neighbours import PARTS, isolation, nearest_distances
from florist.common.audit.view import ActiveStep
from tests.unit.audit.views import active


@pytest.mark.parametrize("block", [1, 100, 2**20])
def test_nearest_equals_brute_force(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_neighbours, "_BLOCK", block)
    points = np.random.default_rng(0).normal(50, 1, size=(80, 4)).astype(np.float32)
    points[70] = points[3]
    chosen, others = np.array([3, 70, 0, 12, 79]), np.arange(2, 78)
    everywhere = np.linalg.norm(points[chosen, None].astype(float) - points, axis=2)
    everywhere[np.arange(5), chosen] = np.inf
    found = nearest_distances(points, chosen, others)
    assert found == pytest.approx(everywhere[:, others].min(axis=1))
    assert found[:2].tolist() == [0, 0]


def test_a_point_is_not_its_own_neighbour() -> None:
    found = nearest_distances(np.zeros((3, 2), dtype=np.float32), np.array([0, 1]), np.array([1]))
    assert found.tolist() == [0, np.inf]


def test_isolation_equals_brute_force() -> None:
    points = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    points[9] = points[30]
    chosen, others = np.arange(0, 60, 3), np.arange(20, 60)
    scores = isolation(points, chosen, others)
    for row, score in zip(chosen, scores, strict=True):
        distances = np.linalg.norm(points.astype(float) - points[row], axis=1)
        distances[row] = np.inf
        by_part = [distances[others[part::PARTS]].min() for part in range(PARTS)]
        expected = np.log(max(min(by_part) / np.median(by_part), 1e-3))
        assert score == pytest.approx(expected, rel=1e-4)
    assert scores[3] == pytest.approx(np.log(1e-3))


def test_identical_points_have_isolation_zero() -> None:
    assert not isolation(np.ones((40, 2), dtype=np.float32), np.arange(5), np.arange(40)).any()


def test_rows_are_standardised_and_constant_dimensions_become_zero() -> None:
    rows = np.random.default_rng(0).normal(3, 5, size=(300, 4))
    rows[:, 2] = 0.1
    found = np.concatenate(list(standardised(active(rows[None]).steps)))
    assert found.mean(axis=0) == pytest.approx(0, abs=1e-5)
    assert found.std(axis=0) == pytest.approx([1, 1, 0, 1], abs=1e-5)


def test_standardisation_follows_changing_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_frames, "_ROWS", 100)
    random = np.random.default_rng(0)
    steps = [
        ActiveStep(0, np.arange(200), rows.astype(np.float32), np.zeros(200, dtype=np.float32))
        for rows in (random.normal(20 * place, 10 + place, size=(200, 2)) for place in range(10))
    ]
    for rows in list(standardised(steps))[1:-1]:
        assert rows.mean(axis=0) == pytest.approx([0, 0], abs=0.3)
        assert rows.std(axis=0) == pytest.approx([0.75, 0.75], abs=0.25)


def test_directions_of_noise_get_no_weight() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 2)) @ random.normal(size=(2, 30))
    noisy = rows + 0.3 * rows.std(axis=0) * random.normal(size=rows.shape)
    view = active(noisy[None])
    ranks, points = one_epoch(view.steps)
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    assert np.array_equal(np.sort(ranks), np.arange(400))
    assert (spread[:2] ** 2).sum() > 0.95 * (spread**2).sum()


def test_changes_of_the_weights_are_removed() -> None:
    """In the frame of all epochs, copies are close to each other whatever batches they were in."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(500, 3))
    copies = rows[:250] + 0  # UIDs 250 to 499 are copies of the first
    rows = np.concatenate([copies, copies])
    start, drift = random.normal(size=(2, 3, 20))
    view = active(np.stack([rows @ (start + epoch * drift) for epoch in (0.0, 0.5, 1.0)]))
    ranks, points = all_epochs(view)
    assert np.array_equal(ranks, np.arange(500))
    apart = np.linalg.norm(points[:250] - points[250:], axis=1)
    others = np.linalg.norm(points[:250] - np.roll(points[250:], 1, axis=0), axis=1)
    assert np.median(apart) < 0.02 * np.median(others)


def test_uids_seen_once_are_left_out() -> None:
    view = active(np.random.default_rng(0).normal(size=(2, 300, 4)))
    cut = type(view)(view.union_size, view.uids, view.steps[:4])
    ranks, points = all_epochs(cut)
    assert set(ranks) == set(view.steps[3].ranks.tolist())
    assert len(points) == len(ranks)
