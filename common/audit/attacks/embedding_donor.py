"""Attack by the active party: the donor of a copied row, among the UIDs that only the peer has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.audit.attack_registry import EMBEDDING_NOISE, active_attack
from florist.common.audit.attack_tools.embedding_frames import all_epochs, one_epoch
from florist.common.audit.attack_tools.nearest_neighbours import isolation_in_view

if TYPE_CHECKING:
    from florist.common.audit.view import ActiveView, Floats


@active_attack("embedding-donor", EMBEDDING_NOISE, needs=("UIDs of the peer alone",))
def embedding_donor(view: ActiveView) -> Floats:
    """Return how isolated the embedding is from those of UIDs that only the peer has.

    None of these are copies, so a UID whose twin is among them is itself a copy. Unlike in
    `embedding-collision` and `embedding-twin`, the donor is not suspected. All epochs are compared
    together, or a single epoch if there is only one. NaN if all UIDs are to be scored, since none
    is then known to be the peer's alone.
    """
    after_all = all_epochs(view)
    frames = [after_all] if len(after_all[0]) else map(one_epoch, view.epochs())
    return view.means(isolation_in_view(view, *frame, among=~view.is_own()) for frame in frames)
