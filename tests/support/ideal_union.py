"""The plaintext oracle of Algorithm 1: the union of two sets, computed the obvious way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from florist.common.session.union_sizes import UnionSizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt


class View(Protocol):
    """The part of `UnionView` that is compared."""

    @property
    def rank_of_own(self) -> npt.NDArray[np.int64]: ...

    @property
    def digest(self) -> bytes: ...

    @property
    def sizes(self) -> UnionSizes: ...


def ideal_sizes(own: Sequence[bytes], peer: Sequence[bytes]) -> UnionSizes:
    """Return the sizes that a party learns without padding."""
    return UnionSizes(len(own), len(peer), len(set(own) | set(peer)))


def is_ideal(
    active_ids: Sequence[bytes],
    passive_ids: Sequence[bytes],
    active: View,
    passive: View,
) -> bool:
    """Return whether both views agree with one injective map from the people into the union.

    Without pools, the other UIDs are exactly the planted ones. With pools, the sizes are as far
    from those of the people as the random draws allow.
    """
    rank_of: dict[bytes, int] = {}
    for ids, view in ((active_ids, active), (passive_ids, passive)):
        for identifier, rank in zip(ids, view.rank_of_own.tolist(), strict=False):
            if rank_of.setdefault(identifier, rank) != rank:
                return False
    ranks = sorted(rank_of.values())
    ours, theirs = active.sizes, passive.sizes
    shared, pool = len(set(active_ids) & set(passive_ids)), ours.pool
    return (
        len(set(ranks)) == len(ranks)
        and (not ranks or 0 <= ranks[0] <= ranks[-1] < ours.union)
        and ours == replace(theirs, own=theirs.peer, peer=theirs.own)
        and active.digest == passive.digest
        and abs(ours.shared_estimate - shared) <= pool
        and all(
            pool <= size - len(ids) <= 3 * pool
            for ids, size in ((active_ids, ours.own), (passive_ids, ours.peer))
        )
        and (bool(pool) or ours.union - ours.planted == len(ranks))
    )
