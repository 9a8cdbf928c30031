"""Attack by the passive party: the length of gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.audit.attack_registry import LABEL_STRATEGY, passive_attack
from florist.common.audit.view import lengths, relative

if TYPE_CHECKING:
    from florist.common.audit.view import Floats, PassiveView


@passive_attack("gradient-norm", remedy=LABEL_STRATEGY)
def gradient_norm(view: PassiveView) -> Floats:
    """Return the length of the gradient, relative to the mean of its batch.

    Labels drawn from the model's own prediction surprise the model less than real ones.
    """
    return view.means((step.ranks, relative(lengths(step.gradients))) for step in view.steps)
