"""Points that are too close to each other to belong to two different people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.view import lengths

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import ActiveView, Floats, Ranks, Rows

#: The most UIDs that are compared with all others.
JUDGED = 8192

#: The other points are split into this many parts, and the nearest point is found in each.
PARTS = 8

#: The fewest other points: two per part, since the judged point may be one of them.
FEWEST = 2 * PARTS

#: Entries per block of the distance matrix: 4 MB, which fits into a processor's cache.
_BLOCK = 2**20


def judged_uids(view: ActiveView) -> Ranks:
    """Return all UIDs of the view, or a fixed random sample of `JUDGED` of them."""
    if len(view.uids) <= JUDGED:
        return view.uids
    chosen: Ranks = np.random.default_rng(0).choice(view.uids, JUDGED, replace=False)
    return np.sort(chosen)


def isolation(points: Rows, chosen: Ranks, others: Ranks) -> Floats:
    """Return log(distance to the nearest other point / usual distance) for each chosen point.

    The usual distance is the median, over `PARTS` parts of the other points, of the distance to the
    nearest point of the part. It measures the local density, and a few copies do not change it. The
    result is 0 where the usual distance is 0. Distances below 1/1000 of the usual one count as
    1/1000, since rounding dominates there.

    Args:
        points: all points, one per row.
        chosen: indices of the points to judge.
        others: indices of the points to compare with: at least `FEWEST`, unless none is chosen. A
            point is not compared with itself.
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


def isolation_in_view(
    view: ActiveView, ranks: Ranks, points: Rows, *, among: npt.NDArray[np.bool_]
) -> tuple[Ranks, Floats]:
    """Return the ranks of the judged UIDs and their `isolation`.

    Args:
        view: decides which UIDs are judged.
        ranks: the UID of each point.
        points: one per row.
        among: for each UID of the union, whether to compare with it.
    """
    judged = np.zeros(view.union_size, dtype=np.bool_)
    judged[judged_uids(view)] = True
    others = np.flatnonzero(among[ranks])
    chosen = np.flatnonzero(judged[ranks] & (len(others) >= FEWEST))
    return ranks[chosen], isolation(points, chosen, others)


def nearest_distances(points: Rows, chosen: Ranks, others: Ranks) -> Floats:
    """Return the distance from each chosen point to the nearest other point, excluding itself.

    The neighbour is searched in float32, which cannot separate points closer than about 1/1000 of
    their distance from the mean. Its distance is then computed exactly. Infinite if there is no
    other point.
    """
    centred = points - points.mean(axis=0)
    # x·y - y²/2 is largest for the nearest y: one matrix product with an extra column.
    half_squares = (centred[others] ** 2).sum(axis=1) / 2
    against = np.vstack([centred[others].T, -half_squares])
    column = np.full(len(points), -1)
    column[others] = np.arange(len(others))
    found = np.empty(len(chosen))
    size = max(1, _BLOCK // max(len(others), 1))
    block = np.empty((size, len(others)), dtype=np.float32)
    for start in range(0, len(chosen), size):
        rows = chosen[start : start + size]
        ours = np.column_stack([centred[rows], np.ones(len(rows), dtype=np.float32)])
        closeness = np.matmul(ours, against, out=block[: len(rows)])
        itself = np.flatnonzero(column[rows] >= 0)
        closeness[itself, column[rows[itself]]] = -np.inf
        nearest = closeness.argmax(axis=1)
        distances = lengths(points[rows].astype(np.float64) - points[others[nearest]])
        distances[np.isneginf(closeness[np.arange(len(rows)), nearest])] = np.inf
        found[start : start + size] = distances
    return found
