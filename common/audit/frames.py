"""Embeddings of different batches, brought into one frame in which their distances tell copies.

Two things blur a copied row: the weights, which change from batch to batch, and noise on every
embedding. Noise is alike in all directions once each dimension has the deviation 1, while real
differences between rows keep to few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.audit.view import ActiveStep, ActiveView, Floats, Ranks, Rows

#: Directions kept of embeddings, at most: those in which they spread most.
DIRECTIONS = 32

#: Rows, at least, that give the mean and the deviation of a dimension around a batch, and rows for
#: each dimension to which the map of a batch is fitted. They come from the batches around it.
_ROWS, _ROWS_PER_DIMENSION = 2048, 64


def standardised(steps: Sequence[ActiveStep]) -> Iterator[Rows]:
    """Each step's embeddings with about the mean 0 and the deviation 1, by the steps around it.

    0 where all are alike. The steps are those of one epoch.
    """
    exact = [step.embeddings.astype(np.float64) for step in steps]
    sums = [np.stack([rows.sum(axis=0), (rows**2).sum(axis=0)]) for rows in exact]
    for place, rows in enumerate(exact):
        near = _around(place, steps, _ROWS)
        mean, square = np.sum(sums[near], axis=0) / sum(len(step.ranks) for step in steps[near])
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        deviation[deviation <= 1e-6 * np.abs(mean)] = np.inf
        yield ((rows - mean) / deviation).astype(np.float32)


def _around(place: int, steps: Sequence[ActiveStep], rows: int) -> slice:
    """The steps near this one, so many that they have about as many rows together."""
    reach = -(-rows // (2 * max(len(steps[place].ranks), 1)))
    return slice(max(0, place - reach), place + reach + 1)


def one_epoch(steps: Sequence[ActiveStep]) -> tuple[Ranks, Rows]:
    """The ranks of an epoch, and a point for each.

    Each direction counts by its share of what is not noise. Noise is as much as there is in the
    direction of least variance.
    """
    rows = np.concatenate(list(standardised(steps)))
    values, vectors = np.linalg.eigh(_gram(rows, rows))  # by rising eigenvalue
    spread = values > 1e-6 * values[-1]
    noise = values[spread].min() if spread.any() else 1.0
    shares = np.sqrt(np.clip(1 - noise / np.where(spread, values, noise), 0, None))
    weighted = (vectors * shares)[:, -DIRECTIONS:].astype(np.float32)
    return np.concatenate([step.ranks for step in steps]), rows @ weighted


def all_epochs(view: ActiveView) -> tuple[Ranks, Rows]:
    """The ranks that came in two epochs or more, and for each the mean of its points in all.

    The embeddings of a batch are mapped to what the same UIDs showed in other epochs, by least
    squares. That takes the batch's weights out, and noise too: it is fresh each time, so nothing
    predicts it.
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
    """Add to each point of an epoch's ranks what its embedding is mapped to, along the axes."""
    squares, products = [], []
    for step, rows in zip(steps, standardised(steps), strict=True):
        seen = count[step.ranks, 0] > 1
        others = (total[step.ranks] - rows)[seen] / (count[step.ranks][seen] - 1)
        squares.append(_gram(rows[seen], rows[seen]))
        products.append(_gram(rows[seen], others @ axes))
    for place, rows in enumerate(standardised(steps)):
        near = _around(place, steps, _ROWS_PER_DIMENSION * len(axes))
        ridge = 10 * np.eye(len(axes))  # ten rows' worth: few rows then map to little
        found = np.linalg.solve(sum(squares[near]) + ridge, sum(products[near]))
        points[steps[place].ranks] += rows @ found.astype(np.float32)


def _gram(rows: Rows, others: Rows) -> Floats:
    product: Floats = rows.T.astype(np.float64) @ others
    return product
