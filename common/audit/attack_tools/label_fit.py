"""How well a label fits the embedding that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_tools.inferred_labels import inferred_labels
from florist.common.audit.view import concatenated

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import ActiveView, Floats, PassiveView, Ranks, Rows

    Labels = npt.NDArray[np.int64]

#: The most rows that a regression is fitted to. More would hardly change it.
FITTED = 20_000

#: Lower bound for the probabilities that a regression predicts.
LEAST = 1e-6


def label_lifts(ranks: Ranks, rows: Rows, labels: Labels) -> Iterator[tuple[Ranks, Floats]]:
    """Yield log(P(label | row) / P(label)), each row scored by a regression on the other half.

    A label that ignores its row has 0 or less on average, a label that depends on it more. Yields
    nothing for a half if the other half has fewer than two labels, or lacks one of its labels.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes more than a second
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415 - takes more than a second
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - takes more than a second

    even = ranks % 2 == 0  # ranks are random, and so is this split
    for judged in (even, ~even):
        others = np.flatnonzero(~judged)[:FITTED]  # in schedule order, which is random
        known, counts = np.unique(labels[others], return_counts=True)
        if len(known) < 2 or not np.isin(labels[judged], known).all() or not judged.any():
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky"))
        model.fit(rows[others].astype(np.float32), labels[others])
        index = np.searchsorted(known, labels[judged])
        given = model.predict_proba(rows[judged].astype(np.float32))[np.arange(len(index)), index]
        yield ranks[judged], np.log(np.maximum(given, LEAST) * counts.sum() / counts[index])


def inferred_label_lifts(view: PassiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Yield `label_lifts` of the passive party's own UIDs, with the labels that gradients reveal.

    Epochs are processed one by one, since their embeddings are not comparable.
    """
    own = view.is_own()
    labels = (label for _, label in inferred_labels(view))
    for steps in view.epochs():
        ranks = np.concatenate([step.ranks for step in steps])
        mine = own[ranks]
        yield from label_lifts(
            ranks[mine],
            np.concatenate([step.embeddings for step in steps])[mine],
            np.concatenate([next(labels) for _ in steps])[mine].astype(np.int64),
        )


def own_label_lifts(view: ActiveView) -> Iterator[tuple[Ranks, Floats]]:
    """Yield `label_lifts` of the active party's own UIDs, with its own labels, epoch by epoch."""
    own = view.is_own()
    for steps in view.epochs():
        ranks, embeddings = concatenated(steps)
        labels = np.concatenate([step.labels for step in steps])
        mine = own[ranks] & np.isfinite(labels)
        yield from label_lifts(ranks[mine], embeddings[mine], labels[mine].astype(np.int64))
