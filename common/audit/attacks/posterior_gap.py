"""Attack by the passive party: labels that fit the features better than the model knew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from florist.common.audit.attack_registry import LABEL_STRATEGY, passive_attack
from florist.common.audit.attack_tools.one_hot_features import one_hot
from florist.common.audit.attack_tools.shown_predictions import shown_predictions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from scipy import sparse

    from florist.common.audit.attack_tools.shown_predictions import ShownPredictions
    from florist.common.audit.view import Floats, PassiveView, Ranks

    Flags = npt.NDArray[np.bool_]

_COLUMNS = 20_000
_FOLDS = 4
#: Lower bound for the probabilities of the posterior.
_LEAST = 1e-4


@passive_attack("posterior-gap", LABEL_STRATEGY, needs=("features",))
def posterior_gap(view: PassiveView) -> Floats:
    """Return log P(y|x) of the label that a gradient shows, minus log p(y) of the model then.

    Synthetic labels are drawn from the predictions of a model that is still poor. P(y|x) is fitted
    to all labels of the whole run on the raw features, so it knows more, and real labels fit it
    better than the model's prediction. The fit is repeated with each label weighted by the
    probability that it is real, as judged by the first fit. Every row is judged by fits to others.
    """
    if view.features is None:
        return np.full(len(view.uids), np.nan)
    shown = list(shown_predictions(view, view.is_own()))
    if not shown:
        return np.full(len(view.uids), np.nan)
    place = np.full(view.union_size, -1)
    place[view.uids] = np.arange(len(view.uids))
    ranks = np.concatenate([window.ranks for window in shown])
    labels = np.concatenate([window.labels for window in shown])
    then = _fit_of(labels, np.concatenate([window.probabilities for window in shown]))
    columns = one_hot(view.features, _COLUMNS)[place[ranks]]
    gap = _posterior_fit(columns, ranks, labels, np.ones(len(labels))) - then
    gap = _posterior_fit(columns, ranks, labels, 2 * expit(2 * gap)) - then
    return view.means(_windows(shown, gap))


def _posterior_fit(
    columns: sparse.csr_array, ranks: Ranks, labels: Flags, weights: Floats
) -> Floats:
    """Return log P(y|x) of each label; NaN where the other folds have one label only."""
    found = np.full(len(labels), np.nan)
    fold = ranks % _FOLDS  # ranks are random, and so is this split
    for number in range(_FOLDS):
        judged, others = fold == number, fold != number
        if not judged.any() or len(np.unique(labels[others])) < 2:
            continue
        model = LogisticRegression(C=0.05, max_iter=200, tol=1e-3)
        model.fit(columns[others], labels[others], weights[others])
        found[judged] = _fit_of(labels[judged], model.predict_proba(columns[judged])[:, 1])
    return found


def _fit_of(labels: Flags, probabilities: Floats) -> Floats:
    found: Floats = np.log(np.maximum(np.where(labels, probabilities, 1 - probabilities), _LEAST))
    return found


def _windows(shown: list[ShownPredictions], scores: Floats) -> Iterator[tuple[Ranks, Floats]]:
    """Yield the scores of each window; those that are NaN are left out."""
    ends = np.cumsum([len(window.ranks) for window in shown])[:-1]
    for window, part in zip(shown, np.split(scores, ends), strict=True):
        known = ~np.isnan(part)
        yield window.ranks[known], part[known]
