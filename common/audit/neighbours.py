"""Points that are too close to each other to be two people's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import lengths

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, Floats, Ranks, Rows

#: UIDs that are compared with all others, at most.
JUDGED = 8192

#: Parts of the other embeddings, in each of which a nearest one is found.
PARTS = 8

#: Others, at least: two in each part, since a point may be one of them.
FEWEST = 2 * PARTS

#: Numbers of a block of the matrix of distances: 4 MB, which a processor's cache can hold.
_BLOCK = 2**20


def judged_uids(view: ActiveView) -> Ranks:
    """All of the view's UIDs, or `JUDGED` of them, always the same."""
    if len(view.uids) <= JUDGED:
        return view.uids
    chosen: Ranks = np.random.default_rng(0).choice(view.uids, JUDGED, replace=False)
    return np.sort(chosen)


def isolation(points: Rows, chosen: Ranks, others: Ranks) -> Floats:
    """How far the nearest of the others is from each chosen point: log of distance / usual one.

    The usual one is the median over `PARTS` parts of the others of the distance to the nearest of
    the part: it tells how crowded the place is, and a few copies do not change it. 0 where it is 0;
    a distance counts as 1/1000 of the usual one at least, below which rounding decides.

    Args:
        points: all of them.
        chosen: indices of those to judge.
        others: indices of those to compare with, `FEWEST` or more unless none is chosen; a point is
            not compared with itself.
    """
    if not len(chosen):
        return np.zeros(0)
    found = np.stack(
        [nearest_distances(points, chosen, others[part::PARTS]) for part in range(PARTS)], axis=1
    )
    usual = np.median(found, axis=1)
    ratio = np.divide(found.min(axis=1), usual, out=np.ones(len(found)), where=usual > 0)
    logarithms: Floats = np.log(np.maximum(ratio, 1e-3))
    return logarithms


def nearest_distances(points: Rows, chosen: Ranks, others: Ranks) -> Floats:
    """From each chosen point to the nearest of the others, itself not among them.

    The neighbour is found in float32, where points closer than about 1/1000 of their distance from
    the mean look alike; its distance is then exact. Infinite where there is no other.
    """
    centred = points - points.mean(axis=0)
    # x·y - y²/2 is greatest for the nearest y: a matrix product with one more column.
    half_squares = (centred[others] ** 2).sum(axis=1) / 2
    against = np.vstack([centred[others].T, -half_squares])
    place = np.full(len(points), -1)
    place[others] = np.arange(len(others))
    found = np.empty(len(chosen))
    size = max(1, _BLOCK // max(len(others), 1))
    block = np.empty((size, len(others)), dtype=np.float32)
    for start in range(0, len(chosen), size):
        rows = chosen[start : start + size]
        ours = np.column_stack([centred[rows], np.ones(len(rows), dtype=np.float32)])
        closeness = np.matmul(ours, against, out=block[: len(rows)])
        itself = np.flatnonzero(place[rows] >= 0)
        closeness[itself, place[rows[itself]]] = -np.inf
        nearest = closeness.argmax(axis=1)
        distances = lengths(points[rows].astype(np.float64) - points[others[nearest]])
        distances[np.isneginf(closeness[np.arange(len(rows)), nearest])] = np.inf
        found[start : start + size] = distances
    return found
