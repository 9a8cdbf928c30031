"""Attack by the passive party: the direction of gradients, which reveals labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.audit.attack_registry import LABEL_STRATEGY, passive_attack
from florist.common.audit.attack_tools.inferred_labels import cosines

if TYPE_CHECKING:
    from florist.common.audit.view import Floats, PassiveView


@passive_attack("gradient-direction", remedy=LABEL_STRATEGY)
def gradient_direction(view: PassiveView) -> Floats:
    """Return how clearly the gradient points to the rarer label.

    Under `label-majority` a clear direction proves that the label is real.
    """
    return view.means(zip((step.ranks for step in view.steps), cosines(view), strict=True))
