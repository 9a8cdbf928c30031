"""How well labels fit embeddings, against a direct computation."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from florist.common.audit.attack_tools import label_fit
from florist.common.audit.attack_tools.label_fit import label_lifts

SIZE = 600


def planted(classes: int, strength: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    ranks = random.permutation(SIZE)
    rows = random.normal(size=(SIZE, 4)).astype(np.float32)
    labels = np.digitize(
        strength * rows[:, 0] + random.normal(size=SIZE), [0.5, 1.5][: classes - 1]
    )
    return ranks, rows, labels


@pytest.mark.parametrize("classes", [2, 3])
def test_lifts_by_hand(classes: int) -> None:
    ranks, rows, labels = planted(classes)
    scaled = {}
    for parity in (0, 1):
        fitted, judged = ranks % 2 != parity, ranks % 2 == parity
        mean, deviation = rows[fitted].mean(axis=0), rows[fitted].std(axis=0)
        model = LogisticRegression(tol=1e-8, max_iter=1000)
        model.fit((rows[fitted] - mean) / deviation, labels[fitted])
        given = model.predict_proba((rows[judged] - mean) / deviation)
        frequencies = np.bincount(labels[fitted]) / fitted.sum()
        for rank, label, row in zip(ranks[judged], labels[judged], given, strict=True):
            scaled[rank] = np.log(row[label] / frequencies[label])
    found: dict[int, float] = {}
    for judged_ranks, lifts in label_lifts(ranks, rows, labels):
        found |= dict(zip(judged_ranks.tolist(), lifts.tolist(), strict=True))
    assert found.keys() == scaled.keys()
    assert [found[rank] for rank in scaled] == pytest.approx(list(scaled.values()), abs=5e-3)


def test_labels_that_ignore_their_rows_have_no_lift() -> None:
    ranks, rows, labels = planted(2)
    fitting = np.concatenate([lifts for _, lifts in label_lifts(ranks, rows, labels)])
    shuffled = np.random.default_rng(1).permutation(labels)
    ignoring = np.concatenate([lifts for _, lifts in label_lifts(ranks, rows, shuffled)])
    assert fitting.mean() > 0.2
    assert ignoring.mean() < 0.01


def test_few_rows_are_fitted_and_all_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, rows, labels = planted(2)
    monkeypatch.setattr(label_fit, "FITTED", 60)
    judged, lifts = (
        np.concatenate(part) for part in zip(*label_lifts(ranks, rows, labels), strict=True)
    )
    assert np.array_equal(np.sort(judged), np.arange(SIZE))
    assert lifts.mean() > 0.1


def test_lifts_are_finite() -> None:
    ranks, rows, labels = planted(2)
    rows[:, 0] = 1e6 * labels
    wrong = np.where(ranks < 10, 1 - labels, labels)
    for _, lifts in label_lifts(ranks, rows, wrong):
        assert np.isfinite(lifts).all()


def test_a_single_label_has_no_lifts() -> None:
    ranks, rows, _ = planted(2)
    assert not list(label_lifts(ranks, rows, np.zeros(SIZE, dtype=np.int64)))
    assert not list(label_lifts(ranks[:0], rows[:0], np.zeros(0, dtype=np.int64)))
