"""Attacks by either party: rows that the model fits better from epoch to epoch.

A model memorises the rows that it learns from. With masking these are the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.audit.attack_registry import active_attack, passive_attack
from florist.common.audit.attack_tools.inferred_labels import surprises
from florist.common.audit.attack_tools.label_fit import own_label_lifts

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, Floats, PassiveView


@passive_attack("memorisation", needs=("two epochs",))
def label_memorisation(view: PassiveView) -> Floats:
    """Return how much less the label surprises the model in the last epoch than in the first.

    NaN where a UID was seen only once.
    """
    return -view.changes(surprises(view))


@active_attack("memorisation", needs=("labels", "two epochs"))
def feature_memorisation(view: ActiveView) -> Floats:
    """Return how much better the embedding fits the own label in the last epoch than in the first.

    NaN where a UID was seen only once, or has no label.
    """
    return view.changes(own_label_lifts(view))
