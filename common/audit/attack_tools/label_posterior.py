"""P(y|x) of the labels that gradients show, each row judged by a fit to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from scipy import sparse

    from florist.common.audit.view import Floats, Ranks

    Flags = npt.NDArray[np.bool_]

#: The most columns of features that the fit uses.
MOST_COLUMNS = 20_000
#: Lower bound for probabilities whose logarithm is taken.
_LEAST = 1e-4


def cross_fitted(
    columns: sparse.csr_array,
    ranks: Ranks,
    labels: Flags,
    weights: Floats | None = None,
    folds: int = 4,
) -> Floats:
    """Return P(y = 1 | x) of each row; NaN where the other folds have one label only.

    Args:
        columns: one-hot features.
        ranks: ranks in the union, which split the rows into folds. Ranks are random.
        labels: one per row.
        weights: of the rows in the fit; None for equal ones.
        folds: a row is judged by a fit to all other folds.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes more than a second

    found = np.full(len(labels), np.nan)
    weights = np.ones(len(labels)) if weights is None else weights
    fold = ranks % folds
    for number in range(folds):
        judged, others = fold == number, fold != number
        if not judged.any() or len(np.unique(labels[others])) < 2:
            continue
        model = LogisticRegression(C=0.05, max_iter=200, tol=1e-3)
        model.fit(columns[others], labels[others], weights[others])
        found[judged] = model.predict_proba(columns[judged])[:, 1]
    return found


def log_fit(labels: Flags, probabilities: Floats) -> Floats:
    """Return the logarithm of the probability of each label, given that of label 1."""
    found: Floats = np.log(np.maximum(np.where(labels, probabilities, 1 - probabilities), _LEAST))
    return found
