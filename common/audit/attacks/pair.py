"""Attack by the active party: own features that do not fit the peer's embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from florist.common.audit.attack_registry import NARROW_CUT, active_attack
from florist.common.audit.attack_tools.embedding_axes import (
    main_axes,
    standardised_columns,
    standardised_window,
)
from florist.common.audit.attack_tools.one_hot_features import one_hot, one_hot_labels
from florist.common.audit.attack_tools.pass_windows import pass_windows

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import ActiveView, Floats, Ranks

    Places = npt.NDArray[np.intp]

#: The most columns of one-hot features: a system of equations of this size is solved per fold.
_COLUMNS = 4096
_FOLDS = 4
#: The ridge of the first regression, in rows, and that of the second one, as a fraction of them.
_RIDGE, _SHRINKAGE = 200.0, 0.02
#: The number of directions in which own features are taken to influence embeddings.
_DIRECTIONS = 8
#: The fewest rows of a fold.
_LEAST = 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Rows:
    """All sightings of the attacker's own UIDs."""

    ranks: Ranks
    #: The embeddings along the axes of their window, each with standard deviation 1.
    points: Floats
    #: Own features and label, one-hot.
    columns: sparse.csr_array
    #: The rows of each window.
    windows: list[Places]


@active_attack("pair", NARROW_CUT, needs=("features",))
def pair(view: ActiveView) -> Floats:
    """Return how much better the embedding fits the own features and label than a random one.

    Real features of the peer depend on the own features of the same person; a stand-in's do not.

    First, embeddings are regressed on all own features, one-hot. The regression is pooled: the
    columns of each window are separate outputs, and the few directions in which own features
    predict any of them are kept. Then each window is regressed on these directions only. Finally a
    logistic regression learns how much a prediction and an embedding of the same row agree more
    than those of different rows. Every row is judged by fits to others.
    """
    rows = _rows(view)
    if rows is None:
        return np.full(len(view.uids), np.nan)
    predicted = _predicted(rows, _directions(rows))
    return view.means(_by_window(rows, _agreement(rows, predicted)))


def _rows(view: ActiveView) -> _Rows | None:
    """Return the sightings; None if there are too few to judge."""
    if view.features is None:
        return None
    place = np.full(view.union_size, -1)
    place[view.uids] = np.arange(len(view.uids))
    features = one_hot(view.features, _COLUMNS)
    ranks, points, labels, windows = [], [], [], []
    start = 0
    for steps in pass_windows(view):
        seen = np.concatenate([step.ranks for step in steps])
        own = place[seen] >= 0
        if own.sum() < _FOLDS * _LEAST:
            continue
        rows = standardised_window(steps)
        ranks.append(seen[own])
        points.append(main_axes(rows, steps[0].logit_columns, whitened=True)[own])
        labels.append(np.concatenate([step.labels for step in steps])[own])
        windows.append(np.arange(start, start := start + len(ranks[-1])))
    if not windows:
        return None
    everyone = np.concatenate(ranks)
    columns = [features[place[everyone]], one_hot_labels(np.concatenate(labels))]
    joined = sparse.csr_array(sparse.hstack(columns))
    return _Rows(everyone, np.concatenate(points), joined, windows)


def _directions(rows: _Rows) -> Floats:
    """Return `_DIRECTIONS` numbers per row: what its own features predict of all windows."""
    fold = rows.ranks % _FOLDS  # ranks are random, and so is this split
    parts = [np.flatnonzero(fold == number) for number in range(_FOLDS)]
    grams = [(rows.columns[part].T @ rows.columns[part]).toarray() for part in parts]
    products = [_products_by_window(rows, fold == number) for number in range(_FOLDS)]
    gram, product = np.sum(grams, axis=0), np.sum(products, axis=0)
    found = np.empty((len(rows.ranks), product.shape[1]))
    for number, part in enumerate(parts):
        others = gram - grams[number]
        others[np.diag_indices_from(others)] += _RIDGE
        weights = cho_solve(cho_factor(others, overwrite_a=True), product - products[number])
        found[part] = rows.columns[part] @ weights
    found -= found.mean(axis=0)
    _, vectors = np.linalg.eigh(found.T @ found)
    return standardised_columns(found @ vectors[:, ::-1][:, :_DIRECTIONS])


def _products_by_window(rows: _Rows, chosen: npt.NDArray[np.bool_]) -> Floats:
    """Return the products of features and embeddings of the chosen rows, window by window."""
    parts = [window[chosen[window]] for window in rows.windows]
    return np.hstack([rows.columns[part].T @ rows.points[part] for part in parts])


def _predicted(rows: _Rows, directions: Floats) -> Floats:
    """Return the prediction of each embedding, from a regression on other rows of its window."""
    found = np.empty_like(rows.points)
    half = rows.ranks // _FOLDS % 2
    for window in rows.windows:
        for number in (0, 1):
            judged = window[half[window] == number]
            others = window[half[window] != number]
            inputs = directions[others]
            ridge = _SHRINKAGE * len(others) * np.eye(inputs.shape[1])
            weights = np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ rows.points[others])
            found[judged] = directions[judged] @ weights
    return found


def _agreement(rows: _Rows, predicted: Floats) -> Floats:
    """Return the log odds that a prediction and an embedding belong to the same row.

    Other pairs are made by a permutation within each window, so that both distributions are the
    same for either kind of pair.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes more than a second

    random = np.random.default_rng(0)
    others = np.concatenate([random.permutation(window) for window in rows.windows])
    found = np.empty(len(rows.ranks))
    half = rows.ranks // (2 * _FOLDS) % 2
    for number in (0, 1):
        fitted, judged = half != number, half == number
        same = _products(predicted[fitted], rows.points[fitted])
        mixed = _products(predicted[others[fitted]], rows.points[fitted])
        inputs = np.concatenate([same, mixed])
        scale = inputs.std(axis=0)
        scale[scale == 0] = 1
        model = LogisticRegression(C=0.01, max_iter=300)
        model.fit(inputs / scale, np.repeat([1, 0], [len(same), len(mixed)]))
        found[judged] = model.decision_function(
            _products(predicted[judged], rows.points[judged]) / scale
        )
    return found


def _products(predicted: Floats, points: Floats) -> Floats:
    return np.hstack([predicted * points, predicted**2])


def _by_window(rows: _Rows, scores: Floats) -> list[tuple[Ranks, Floats]]:
    return [(rows.ranks[window], scores[window]) for window in rows.windows]
