"""Attack by the passive party: learns from shadows of the label aggregate who is part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from florist.common.audit.attack_registry import AGGREGATE_NOISE, passive_attack
from florist.common.audit.attack_tools.aggregate_evidence import AggregateEvidence
from florist.common.audit.attack_tools.label_posterior import MOST_COLUMNS, cross_fitted
from florist.common.audit.attack_tools.one_hot_features import one_hot
from florist.common.audit.attack_tools.shadow_aggregates import (
    FOLDS,
    PENALTIES,
    OwnRows,
    SeenAggregate,
    inputs,
    shadow,
)
from florist.common.audit.attack_tools.shown_rows import ShownRows
from florist.common.label_aggregate.first_model import solve_first_model

if TYPE_CHECKING:
    from florist.common.audit.view import Floats, PassiveView, Ranks
    from florist.common.label_aggregate.first_model import Aggregate

_SEED = 0
_SHADOWS = 3
#: Rows of all shadows together from which the classifier learns; more hardly change it.
_FITTED = 200_000


@passive_attack(
    "aggregate-boosting", AGGREGATE_NOISE, needs=("features", "aggregate of two classes")
)
def aggregate_boosting(view: PassiveView) -> Floats:
    """Return the log odds of a classifier that was fitted to shadows of the aggregate.

    The attacker can draw a shadow of everything: who is shared, their labels, the sums, the first
    model and the labels of the others. In a shadow it knows who is shared. Inputs are the score of
    `aggregate-posterior` and its parts, the label, P(y|x), the first model, how much the row's own
    label contributes to that, and how rare its categories are.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - takes more than a second

    if view.features is None or view.aggregate is None or view.aggregate.codes.outputs != 1:
        return np.full(len(view.uids), np.nan)
    random = np.random.RandomState(_SEED)
    aggregate, categories = view.aggregate, view.features.rows.categories
    evidence = AggregateEvidence.of(aggregate, categories, random)
    columns = one_hot(view.features, MOST_COLUMNS)
    rows = OwnRows.of(aggregate, categories, columns, view.uids, evidence)
    seen = _seen(view, aggregate, rows, random)
    if seen is None:
        return np.full(len(view.uids), np.nan)
    parts, truths = [], []
    for _ in range(_SHADOWS):
        drawn, is_shared = shadow(rows, aggregate, seen.fitted, seen.penalty, random)
        chosen = _sample(len(view.uids), random)
        parts.append(inputs(rows, drawn)[chosen])
        truths.append(is_shared[chosen])
    real = inputs(rows, seen)
    truth = np.concatenate(truths)
    if truth.all() or not truth.any():
        return np.full(len(view.uids), np.nan)
    model = HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_iter=60,
        max_leaf_nodes=8,
        min_samples_leaf=200,
        l2_regularization=10.0,
        monotonic_cst=[1, 1, 1] + [0] * (real.shape[1] - 3),
        early_stopping=False,
        random_state=_SEED,
    )
    model.fit(np.concatenate(parts), truth)
    scores: Floats = model.decision_function(real)
    return np.where(seen.known, scores, np.nan)


def _seen(
    view: PassiveView, aggregate: Aggregate, rows: OwnRows, random: np.random.RandomState
) -> SeenAggregate | None:
    """Return what was seen of the real run; None if it shows one label only."""
    shown = ShownRows.of(view)
    sums = aggregate.sums[:, 0].astype(np.float64)
    classes = rows.evidence.classes_of(sums, shown.labels)
    labels = classes > 0
    swapped = not np.array_equal(labels, shown.labels)
    predicted = 1 - shown.probabilities if swapped else shown.probabilities
    known = shown.known
    if len(np.unique(labels[known])) < 2:
        return None
    fitted = np.full(len(known), aggregate.rates[1])
    fitted[known] = cross_fitted(rows.columns[known], view.uids[known], labels[known], folds=FOLDS)
    fitted = np.where(np.isfinite(fitted), fitted, aggregate.rates[1])
    penalty, first = _first_model(aggregate, rows, predicted, random)
    return SeenAggregate(
        aggregate, classes, known, shown.changed, predicted, first, fitted, penalty
    )


def _first_model(
    aggregate: Aggregate, rows: OwnRows, predicted: Floats, random: np.random.RandomState
) -> tuple[float, Floats]:
    """Return the regularisation of the run, and the first model's P(class 1) of each row.

    The attacker knows its own model. The view does not contain it, so it is the one that is most
    like the predictions that gradients show.
    """
    found = []
    for penalty in PENALTIES:
        model = solve_first_model(aggregate, rows.categories, random, penalty)
        first = model.probabilities(rows.categories)[:, 1]
        found.append((penalty, first))
    return min(found, key=lambda one: float(((logit(one[1]) - logit(predicted)) ** 2).mean()))


def _sample(size: int, random: np.random.RandomState) -> Ranks:
    return random.permutation(size)[: _FITTED // _SHADOWS]
