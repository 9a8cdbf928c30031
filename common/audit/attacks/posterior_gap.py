"""Attack by the passive party: labels that fit the features better than the model knew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from florist.common.audit.attack_registry import LABEL_STRATEGY, passive_attack
from florist.common.audit.attack_tools.label_posterior import MOST_COLUMNS, cross_fitted, log_fit
from florist.common.audit.attack_tools.one_hot_features import one_hot
from florist.common.audit.attack_tools.shown_predictions import shown_predictions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.audit.attack_tools.shown_predictions import ShownPredictions
    from florist.common.audit.view import Floats, PassiveView, Ranks


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
    then = log_fit(labels, np.concatenate([window.probabilities for window in shown]))
    columns = one_hot(view.features, MOST_COLUMNS)[place[ranks]]
    gap = log_fit(labels, cross_fitted(columns, ranks, labels)) - then
    weights = 2 * expit(2 * gap)
    gap = log_fit(labels, cross_fitted(columns, ranks, labels, weights)) - then
    return view.means(_windows(shown, gap))


def _windows(shown: list[ShownPredictions], scores: Floats) -> Iterator[tuple[Ranks, Floats]]:
    """Yield the scores of each window; those that are NaN are left out."""
    ends = np.cumsum([len(window.ranks) for window in shown])[:-1]
    for window, part in zip(shown, np.split(scores, ends), strict=True):
        known = ~np.isnan(part)
        yield window.ranks[known], part[known]
