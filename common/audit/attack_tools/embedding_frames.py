"""Maps embeddings of different batches into one frame, in which small distances indicate copies.

Two things blur a copied row: the weights, which change from batch to batch, and the noise on every
embedding. Once each dimension is scaled to standard deviation 1, noise is equally large in all
directions, while real differences between rows are confined to a few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.audit.view import ActiveStep, ActiveView, Floats, Ranks, Rows

#: The most directions of embeddings that are kept: those with the greatest variance.
DIRECTIONS = 32

#: The fewest rows from which mean and standard deviation around a batch are computed, and the rows
#: per dimension to which a batch's map is fitted. They are taken from the neighbouring batches.
_ROWS, _ROWS_PER_DIMENSION = 2048, 64


def standardised(steps: Sequence[ActiveStep]) -> Iterator[Rows]:
    """Yield each step's embeddings with mean 0 and standard deviation 1, estimated around the step.

    Dimensions that are constant become 0. The steps are those of one epoch.
    """
    exact = [step.embeddings.astype(np.float64) for step in steps]
    sums = [np.stack([rows.sum(axis=0), (rows**2).sum(axis=0)]) for rows in exact]
    for index, rows in enumerate(exact):
        near = _around(index, steps, _ROWS)
        mean, square = np.sum(sums[near], axis=0) / sum(len(step.ranks) for step in steps[near])
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        deviation[deviation <= 1e-6 * np.abs(mean)] = np.inf
        yield ((rows - mean) / deviation).astype(np.float32)


def _around(index: int, steps: Sequence[ActiveStep], rows: int) -> slice:
    """Return the steps around `index` that have about `rows` rows together."""
    reach = -(-rows // (2 * max(len(steps[index].ranks), 1)))
    return slice(max(0, index - reach), index + reach + 1)


def one_epoch(steps: Sequence[ActiveStep]) -> tuple[Ranks, Rows]:
    """Return the ranks of an epoch and a point for each of them.

    Each direction is weighted by the share of its variance that is not noise. The variance of the
    noise is taken to be that of the direction with the least variance.
    """
    rows = np.concatenate(list(standardised(steps)))
    values, vectors = np.linalg.eigh(_gram(rows, rows))  # by rising eigenvalue
    spread = values > 1e-6 * values[-1]
    noise = values[spread].min() if spread.any() else 1.0
    shares = np.sqrt(np.clip(1 - noise / np.where(spread, values, noise), 0, None))
    if not shares.any():  # all directions are alike, for instance if there is only one
        shares = np.ones_like(shares)
    weighted = (vectors * shares)[:, -DIRECTIONS:].astype(np.float32)
    return np.concatenate([step.ranks for step in steps]), rows @ weighted


def all_epochs(view: ActiveView) -> tuple[Ranks, Rows]:
    """Return the ranks seen in two epochs or more, and for each the mean of its mapped points.

    The embeddings of a batch are mapped, by least squares, to those of the same UIDs in other
    epochs. That removes the batch's weights, and also the noise: it is drawn again each time, so
    nothing predicts it.
    """
    width = view.steps[0].embeddings.shape[1] if view.steps else 0
    total = np.zeros((view.union_size, width), dtype=np.float32)
    count = np.zeros((view.union_size, 1), dtype=np.float32)
    for steps in view.epochs():
        for step, rows in zip(steps, standardised(steps), strict=True):
            total[step.ranks] += rows
            count[step.ranks] += 1
    ranks = np.flatnonzero(count[:, 0] > 1)
    if not len(ranks):
        return ranks, np.zeros((0, DIRECTIONS), dtype=np.float32)
    means = total[ranks] / count[ranks]
    axes = np.linalg.eigh(_gram(means, means)).eigenvectors[:, -DIRECTIONS:].astype(np.float32)
    points = np.zeros((view.union_size, axes.shape[1]), dtype=np.float32)
    for steps in view.epochs():
        _add_mapped(points, steps, total, count, axes)
    return ranks, points[ranks] / count[ranks]


def _add_mapped(
    points: Rows, steps: Sequence[ActiveStep], total: Rows, count: Rows, axes: Rows
) -> None:
    """Add the mapped embeddings of an epoch to the points of their ranks."""
    squares, products = [], []
    for step, rows in zip(steps, standardised(steps), strict=True):
        seen = count[step.ranks, 0] > 1
        others = (total[step.ranks] - rows)[seen] / (count[step.ranks][seen] - 1)
        squares.append(_gram(rows[seen], rows[seen]))
        products.append(_gram(rows[seen], others @ axes))
    for index, rows in enumerate(standardised(steps)):
        near = _around(index, steps, _ROWS_PER_DIMENSION * len(axes))
        # A ridge worth ten rows shrinks maps that are fitted to few rows.
        ridge = 10 * np.eye(len(axes))
        found = np.linalg.solve(sum(squares[near]) + ridge, sum(products[near]))
        points[steps[index].ranks] += rows @ found.astype(np.float32)


def _gram(rows: Rows, others: Rows) -> Floats:
    product: Floats = rows.T.astype(np.float64) @ others
    return product
