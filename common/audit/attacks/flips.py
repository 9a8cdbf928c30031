"""Attack by the passive party: labels that change between epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import STICKY_DATA, passive_attack
from florist.common.audit.attack_tools.inferred_labels import inferred_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.audit.view import Floats, PassiveView, Ranks


@passive_attack("flips", STICKY_DATA, needs=("two epochs",))
def flips(view: PassiveView) -> Floats:
    """Return minus the share of epochs in which the inferred label differs from the previous one.

    Real labels never change. NaN where a UID was seen only once.
    """
    last = np.zeros(view.union_size, dtype=np.bool_)
    seen = np.zeros(view.union_size, dtype=np.bool_)

    def changes() -> Iterator[tuple[Ranks, Floats]]:
        for ranks, labels in inferred_labels(view):
            again = ranks[seen[ranks]]
            yield again, -(last[again] != labels[seen[ranks]]).astype(np.float64)
            last[ranks] = labels
            seen[ranks] = True

    return view.means(changes())
