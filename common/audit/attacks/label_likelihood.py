"""Attacks by either party: how well a label fits the embedding that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.audit.attack_registry import LABEL_STRATEGY, active_attack, passive_attack
from florist.common.audit.attack_tools.label_fit import inferred_label_lifts, own_label_lifts

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, Floats, PassiveView


@passive_attack("label-likelihood", remedy=LABEL_STRATEGY)
def inferred_label_likelihood(view: PassiveView) -> Floats:
    """Return how much better the inferred label fits the own embedding than a random label.

    Real labels depend on the features; synthetic ones may ignore them. NaN where all rows seem to
    have the same label.
    """
    return view.means(inferred_label_lifts(view))


@active_attack("label-likelihood", needs=("labels",))
def own_label_likelihood(view: ActiveView) -> Floats:
    """Return how much better the embedding fits the own label than a random label.

    Real features fit the label, a stand-in's do not. No feature strategy can hide this, because it
    is what the model learns. NaN without a label.
    """
    return view.means(own_label_lifts(view))
