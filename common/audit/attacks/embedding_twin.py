"""Attack by the active party: embeddings that nearly coincide on average over all epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.attack_registry import EMBEDDING_NOISE, active_attack
from florist.common.audit.attack_tools.embedding_frames import all_epochs
from florist.common.audit.attack_tools.nearest_neighbours import isolation_in_view

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, Floats


@active_attack("embedding-twin", EMBEDDING_NOISE, needs=("two epochs",))
def embedding_twin(view: ActiveView) -> Floats:
    """Return how isolated the embedding is, with noise and weight changes averaged out.

    Unlike `embedding-collision` it finds sticky donors behind more noise. NaN where a UID was seen
    only once.
    """
    everyone = np.ones(view.union_size, dtype=np.bool_)
    return view.means([isolation_in_view(view, *all_epochs(view), among=everyone)])
