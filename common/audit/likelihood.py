"""How well a label fits the embedding beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Floats, Ranks, Rows

    Labels = npt.NDArray[np.int64]

#: Rows that a regression is fitted to, at most: more would hardly change it.
FITTED = 20_000

#: The least probability that a regression is believed.
LEAST = 1e-6


def label_lifts(ranks: Ranks, rows: Rows, labels: Labels) -> Iterator[tuple[Ranks, Floats]]:
    """The logarithm of P(label | row) / P(label), each row judged by a fit to the other half.

    A label that ignores its row has 0 or less on average, one that belongs to it more. Nothing for
    a half where the other one has fewer than two labels, or lacks one of this half's.
    """
    even = ranks % 2 == 0  # ranks are in random order
    for judged in (even, ~even):
        others = np.flatnonzero(~judged)[:FITTED]  # in the order of a schedule: a random choice
        known, counts = np.unique(labels[others], return_counts=True)
        if len(known) < 2 or not np.isin(labels[judged], known).all() or not judged.any():
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky"))
        model.fit(rows[others].astype(np.float32), labels[others])
        place = np.searchsorted(known, labels[judged])
        given = model.predict_proba(rows[judged].astype(np.float32))[np.arange(len(place)), place]
        yield ranks[judged], np.log(np.maximum(given, LEAST) * counts.sum() / counts[place])
