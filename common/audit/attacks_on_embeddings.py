"""What the active party can read from embeddings, besides the spectral attack."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import relative

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.audit.view import ActiveStep, ActiveView, Floats, Ranks, Rows

#: Numbers of a block of the matrix of distances: 64 MB.
_BLOCK = 2**24


def embedding_collision(view: ActiveView) -> Floats:
    """Distance to the nearest other embedding of the epoch, whoever's: copied rows have a twin."""
    own = view.is_own()

    def distances() -> Iterator[tuple[Ranks, Floats]]:
        for steps in view.epochs():
            ranks, embeddings = _together(steps)
            if len(ranks) > 1:
                mine = np.flatnonzero(own[ranks])
                yield ranks[mine], relative(nearest_distances(embeddings, mine))

    return view.means(distances())


def nearest_distances(points: Rows, chosen: Ranks) -> Floats:
    """From each chosen point to the nearest of all others, of which there must be one.

    The neighbour is found in float32, where points closer than about 1/1000 of their distance from
    the mean look alike; its distance is then exact.
    """
    centred = points - points.mean(axis=0)
    half_squares = (centred**2).sum(axis=1) / 2
    found = np.empty(len(chosen))
    size = max(1, _BLOCK // len(points))
    for start in range(0, len(chosen), size):
        rows = chosen[start : start + size]
        closeness = centred[rows] @ centred.T - half_squares
        closeness[np.arange(len(rows)), rows] = -np.inf
        nearest = closeness.argmax(axis=1)
        found[start : start + size] = _lengths(points[rows], points[nearest])
    return found


def embedding_drift(view: ActiveView) -> Floats:
    """Minus how far an embedding moved between epochs, beyond what the model's own change explains.

    That change is taken for an affine map from one epoch's embeddings to the next one's, fitted to
    all UIDs, and again to the half of them that it fits best. Real features never change, so what
    is left over is a stand-in that does. NaN where a UID was seen once.
    """

    def residuals() -> Iterator[tuple[Ranks, Floats]]:
        for before, after in pairwise(map(_together, view.epochs())):
            ranks, ours, theirs = np.intersect1d(before[0], after[0], return_indices=True)
            if len(ranks):
                yield ranks, -relative(_unexplained(before[1][ours], after[1][theirs]))

    return view.means(residuals())


def _unexplained(before: Rows, after: Rows) -> Floats:
    inputs = np.column_stack([before, np.ones(len(before))]).astype(np.float64)
    residual = _lengths(inputs @ _fit(inputs, after), after)
    best = residual <= np.median(residual)
    return _lengths(inputs @ _fit(inputs[best], after[best]), after)


def _fit(inputs: Floats, outputs: Rows) -> Floats:
    """Least squares by the normal equations, which are as small as the embeddings are wide."""
    return np.linalg.pinv(inputs.T @ inputs, hermitian=True) @ (inputs.T @ outputs)


def _lengths(points: Rows | Floats, others: Rows | Floats) -> Floats:
    lengths: Floats = np.linalg.norm(points.astype(np.float64) - others, axis=1)
    return lengths


def _together(steps: list[ActiveStep]) -> tuple[Ranks, Rows]:
    return (
        np.concatenate([step.ranks for step in steps]),
        np.concatenate([step.embeddings for step in steps]),
    )
