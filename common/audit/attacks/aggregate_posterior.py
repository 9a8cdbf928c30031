"""Attack by the passive party: whose labels are part of the sums that it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import AGGREGATE_NOISE, passive_attack
from florist.common.audit.attack_tools.aggregate_evidence import AggregateEvidence
from florist.common.audit.attack_tools.label_posterior import MOST_COLUMNS, cross_fitted, log_fit
from florist.common.audit.attack_tools.one_hot_features import one_hot
from florist.common.audit.attack_tools.shown_rows import ShownRows

if TYPE_CHECKING:
    from florist.common.audit.view import Floats, PassiveView

_SEED = 0


@passive_attack(
    "aggregate-posterior", AGGREGATE_NOISE, needs=("features", "aggregate of two classes")
)
def aggregate_posterior(view: PassiveView) -> Floats:
    """Return the log odds that a row is shared, given the sums and all labels that gradients show.

    The label of a shared person is part of the sums of its categories. Given the shown labels of
    all rows, the sums depend only on who is shared: `attack_tools.label_sums`. The prior chance
    comes from the label itself: a real one follows P(y|x), a synthetic one the model's prediction.
    """
    if view.features is None or view.aggregate is None or view.aggregate.codes.outputs != 1:
        return np.full(len(view.uids), np.nan)
    shown = ShownRows.of(view)
    sums = view.aggregate.sums[:, 0].astype(np.float64)
    evidence = AggregateEvidence.of(
        view.aggregate, view.features.rows.categories, np.random.RandomState(_SEED)
    )
    columns = one_hot(view.features, MOST_COLUMNS)[shown.known]
    labels = shown.labels[shown.known]
    gaps = np.zeros(len(view.uids))
    fitted = cross_fitted(columns, view.uids[shown.known], labels)
    gaps[shown.known] = log_fit(labels, fitted) - log_fit(labels, shown.probabilities[shown.known])
    gaps[shown.changed] = -np.inf
    classes = evidence.classes_of(sums, shown.labels)
    scores = evidence.evidence(sums, classes, shown.known, gaps).scores
    return np.where(shown.known, scores, np.nan)
