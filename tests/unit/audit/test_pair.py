"""Own features against embeddings: found if real embeddings depend on them, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from florist.common.audit.attacks.pair import pair
from florist.common.audit.statistics import evaluate
from tests.unit.audit.views import active, auc_of, half_real, is_at_chance, own_features, with_steps

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveStep, ActiveView

Array = npt.NDArray[Any]

SIZE, OWN, WIDTH = 3000, 2400, 10


def planted(strength: float, seed: int = 0, *, turning: bool = False) -> tuple[ActiveView, Array]:
    """Return embeddings of which the real ones depend on own features, and the truth of own UIDs.

    If they turn, the direction in which features act differs in each of three epochs.
    """
    random = np.random.default_rng(seed)
    numeric, categories = random.random((SIZE, 1)), random.integers(0, [[3, 6]], (SIZE, 2))
    effects = [random.normal(size=(count, WIDTH)) for count in (3, 6)]
    is_real = half_real(SIZE)
    shown = np.where(is_real, np.arange(SIZE), random.permutation(SIZE))
    signal = sum(effect[categories[shown, n]] for n, effect in enumerate(effects))
    signal = signal + 4 * np.abs(numeric[shown] - 0.5) * random.normal(size=WIDTH)
    epochs = []
    for _ in range(3 if turning else 1):
        rows = strength * signal + random.normal(size=(SIZE, WIDTH))
        epochs.append(rows @ random.normal(size=(WIDTH, WIDTH)) if turning else rows)
    view = active(
        np.stack(epochs),
        (random.random(SIZE) < 0.3).astype(float),
        np.arange(OWN),
        own_features(numeric[:OWN], categories[:OWN]),
    )
    return view, is_real[:OWN]


def test_embeddings_that_do_not_fit_the_own_features_are_found() -> None:
    view, is_real = planted(0.5)
    result = evaluate("pair", pair(view), is_real)
    assert result.real + result.synthetic == OWN
    assert result.auc.low > 0.75
    assert result.finds_synthetic[0.01].value > 0.05


def test_each_window_has_its_own_weights() -> None:
    """Windows are pooled by what features predict, not by the directions of embeddings."""
    view, is_real = planted(0.5, turning=True)
    assert auc_of(pair(view), is_real) > 0.75


def test_embeddings_that_ignore_the_own_features_are_not_found() -> None:
    assert is_at_chance(pair(planted(0.0)[0]))


def test_unusual_embeddings_alone_are_no_evidence() -> None:
    """A row far from the mean, or with unusual features, is judged by whether the two agree."""
    view, is_real = planted(0.0)
    scale = np.where(half_real(SIZE), 3.0, 1.0)[:, None]
    steps = [replace(step, embeddings=step.embeddings * scale[step.ranks]) for step in view.steps]
    assert auc_of(pair(with_steps(view, steps)), is_real) == pytest.approx(0.5, abs=0.06)


def test_the_label_counts_as_a_feature() -> None:
    random = np.random.default_rng(1)
    is_real, labels = half_real(SIZE), (random.random(SIZE) < 0.4).astype(float)
    hint = np.where(is_real, labels, random.permutation(labels))
    rows = random.normal(size=(1, SIZE, WIDTH)) + 3 * hint[:, None]
    numbers = own_features(random.random((SIZE, 1)), np.zeros((SIZE, 0)))
    assert auc_of(pair(active(rows, labels, features=numbers)), is_real) > 0.65
    unlabelled = pair(active(rows, np.full(SIZE, np.nan), features=numbers))
    assert auc_of(unlabelled, is_real) == pytest.approx(0.5, abs=0.05)


def test_it_needs_features_and_enough_rows() -> None:
    view, _ = planted(0.5)
    assert np.isnan(pair(replace(view, features=None))).all()
    few = with_steps(view, [first_rows(view.steps[0], 40)])
    assert np.isnan(pair(few)).all()


def first_rows(step: ActiveStep, rows: int) -> ActiveStep:
    return replace(
        step,
        ranks=step.ranks[:rows],
        embeddings=step.embeddings[:rows],
        labels=step.labels[:rows],
    )


def test_scores_do_not_depend_on_the_scale_of_embeddings() -> None:
    view, _ = planted(0.5)
    scaled = [replace(step, embeddings=1024 * step.embeddings - 7) for step in view.steps]
    assert pair(with_steps(view, scaled)) == pytest.approx(pair(view), abs=0.01)
