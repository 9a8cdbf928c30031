"""Planted views of a passive party that was told a label aggregate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from florist.common.label_aggregate.coordinates import Coordinates
from florist.common.label_aggregate.first_model import Aggregate
from florist.common.label_aggregate.label_codes import LabelCodes
from tests.unit.audit.views import BATCH, half_real, own_features, passive

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import OwnFeatures, PassiveView

    Array = npt.NDArray[Any]

#: Rates of the classes of `random_aggregate`.
_COUNTS = (700, 300)

SIZE, OWN, COLUMNS, CATEGORIES = 3000, 2400, 8, 60


def planted_aggregate(
    noise: float, *, positives: float = 0.4, epochs: int = 1, redrawn: bool = False, seed: int = 3
) -> tuple[PassiveView, Array]:
    """Return a view and the truth about own UIDs.

    Labels are independent of the features, and synthetic ones are drawn at the same rate: only the
    sums tell who is shared.

    Args:
        noise: the deviation of the noise on the sums.
        positives: the frequency of class 1.
        epochs: how often gradients show the labels.
        redrawn: whether synthetic labels are drawn again in each epoch.
        seed: of all draws.
    """
    random = np.random.default_rng(seed)
    categories = random.integers(0, CATEGORIES, (OWN, COLUMNS)).astype(np.int32)
    is_real = half_real(SIZE, seed)
    labels = np.repeat(random.random((1, SIZE)) < positives, epochs, axis=0)
    if redrawn:
        drawn = random.random((epochs, SIZE)) < positives
        labels = np.where(is_real, labels, drawn)
    errors = positives - labels
    gradients = np.dstack([random.normal(size=(epochs, SIZE, 3)), errors / BATCH])
    view = passive(
        gradients, gradients, np.arange(OWN), own_features(np.zeros((OWN, 0)), categories), 1
    )
    counts = (round(10_000 * (1 - positives)), round(10_000 * positives))
    codes = LabelCodes.for_counts(counts)
    coordinates = Coordinates.of_table(categories, (CATEGORIES,) * COLUMNS, 10)
    values = codes.table()[labels[0, :OWN].astype(int), 0] * is_real[:OWN]
    sums = np.bincount(
        coordinates.of(categories).ravel(),
        weights=np.repeat(values, COLUMNS),
        minlength=coordinates.count,
    )
    noised = np.rint(sums + noise * random.normal(size=len(sums))).astype(np.int64)
    aggregate = Aggregate(coordinates, codes, noised[:, None], noise, counts, 0.5)
    return replace(view, aggregate=aggregate), is_real[:OWN]


def random_aggregate(features: OwnFeatures) -> Aggregate:
    """Return an aggregate for these rows that no labels depend on."""
    coordinates = Coordinates.of_table(features.rows.categories, features.cardinalities, 1)
    sums = np.random.default_rng(12).normal(size=(coordinates.count, 1))
    codes = LabelCodes.for_counts(_COUNTS)
    return Aggregate(coordinates, codes, np.rint(5 * sums).astype(np.int64), 5.0, _COUNTS, 0.5)
