"""Attack by the active party: embeddings of one epoch that nearly coincide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import EMBEDDING_NOISE, active_attack
from florist.common.audit.attack_tools.embedding_frames import one_epoch
from florist.common.audit.attack_tools.nearest_neighbours import isolation_in_view

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, Floats


@active_attack("embedding-collision", remedy=EMBEDDING_NOISE)
def embedding_collision(view: ActiveView) -> Floats:
    """Return how isolated the embedding is within its epoch: a copied row has a near twin.

    The score is the mean of `isolation` over epochs, for at most `JUDGED` UIDs; NaN for the others.
    """
    everyone = np.ones(view.union_size, dtype=np.bool_)
    return view.means(
        isolation_in_view(view, *one_epoch(steps), among=everyone) for steps in view.epochs()
    )
