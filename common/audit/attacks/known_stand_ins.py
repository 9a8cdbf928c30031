"""Attacks by either party: own dummies, for which the peer surely has synthetic data, as examples.

Nobody else has a dummy, so the peer treats it as any UID that it lacks. A party with dummies
therefore has examples of the peer's synthetic data, and can learn what distinguishes them from the
data of its own UIDs, some of which are real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from florist.common.audit.attack_registry import (
    FEATURE_STRATEGY,
    LABEL_STRATEGY,
    active_attack,
    passive_attack,
)
from florist.common.audit.attack_tools.embedding_axes import (
    main_axes,
    standardised_columns,
    standardised_window,
)
from florist.common.audit.attack_tools.pass_windows import pass_windows
from florist.common.audit.attack_tools.shown_predictions import shown_predictions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from florist.common.audit.view import ActiveView, Floats, PassiveView, Ranks

    Flags = npt.NDArray[np.bool_]

#: The fewest dummies, and the axes of embeddings that are used.
_LEAST, _AXES = 20, 16


@active_attack("known-stand-ins", FEATURE_STRATEGY, needs=("known stand-ins",))
def features_unlike_stand_ins(view: ActiveView) -> Floats:
    """Return how little the embedding, together with the label, resembles those of own dummies.

    A dummy whose label was not kept gets one at random, with the rates of the own labels: a
    stand-in that was drawn without knowing the label fits any.
    """
    dummies = _dummies(view)
    examples = view.is_own() | dummies
    ranks, rows, labels = [], [], []
    for steps in pass_windows(view):
        seen = np.concatenate([step.ranks for step in steps])
        chosen = examples[seen]
        ranks.append(seen[chosen])
        rows.append(standardised_window(steps)[chosen])
        labels.append(np.concatenate([step.labels for step in steps])[chosen])
    if dummies.sum() < _LEAST or not ranks:
        return np.full(len(view.uids), np.nan)
    axes = main_axes(np.concatenate(rows), view.steps[0].logit_columns, _AXES)
    label = standardised_columns(_filled(np.concatenate(labels))[:, None])
    return view.means(_scores(ranks, np.hstack([axes, axes**2, label, label * axes]), dummies))


@passive_attack("known-stand-ins", LABEL_STRATEGY, needs=("known stand-ins",))
def labels_unlike_stand_ins(view: PassiveView) -> Floats:
    """Return how little label, prediction and embedding together resemble those of own dummies."""
    dummies = _dummies(view)
    shown = list(shown_predictions(view, view.is_own() | dummies))
    if dummies.sum() < _LEAST or not shown:
        return np.full(len(view.uids), np.nan)
    sent = np.concatenate([window.embeddings for window in shown])
    axes = main_axes(sent, view.steps[0].logit_columns, _AXES)
    odds = logit(np.concatenate([window.probabilities for window in shown]))
    label = np.concatenate([window.labels for window in shown]).astype(np.float64)
    known = standardised_columns(np.column_stack([label, odds, label * odds]))
    inputs = np.hstack([axes, axes**2, known, known[:, :1] * axes])
    return view.means(_scores([window.ranks for window in shown], inputs, dummies))


def _dummies(view: PassiveView | ActiveView) -> Flags:
    """Return, for each UID of the union, whether it is known to be a stand-in."""
    found = np.zeros(view.union_size, dtype=np.bool_)
    if view.known_stand_ins is not None:
        found[view.known_stand_ins] = True
    return found


def _filled(labels: npt.NDArray[np.floating]) -> Floats:
    """Replace unknown labels by known ones, drawn at random."""
    exact = labels.astype(np.float64)
    known = np.isfinite(exact)
    if not known.any():
        return np.zeros_like(exact)
    exact[~known] = np.random.default_rng(0).choice(exact[known], int((~known).sum()))
    return exact


def _scores(windows: list[Ranks], inputs: Floats, dummies: Flags) -> Iterator[tuple[Ranks, Floats]]:
    """Yield, per window, the log odds that a row is not that of a dummy.

    Each half of the UIDs is judged by a logistic regression on the other half.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes more than a second

    ranks = np.concatenate(windows)
    is_dummy, half = dummies[ranks], ranks % 2  # ranks are random, and so is this split
    scores = np.full(len(ranks), np.nan)
    for number in (0, 1):
        fitted = (half != number) | is_dummy
        judged = (half == number) & ~is_dummy
        if judged.any() and not is_dummy[fitted].all():
            model = LogisticRegression(C=0.01, class_weight="balanced", max_iter=200)
            model.fit(inputs[fitted], ~is_dummy[fitted])
            scores[judged] = model.decision_function(inputs[judged])
    ends = np.cumsum([len(window) for window in windows])[:-1]
    for window, part in zip(windows, np.split(scores, ends), strict=True):
        known = ~np.isnan(part)
        yield window[known], part[known]
