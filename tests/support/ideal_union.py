"""The plaintext oracle of Algorithm 1: the union of two sets, computed the obvious way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from florist.common.psu.union_view import Sizes

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
    def sizes(self) -> Sizes: ...


def ideal_sizes(own: Sequence[bytes], peer: Sequence[bytes]) -> Sizes:
    """Return the sizes that a party learns."""
    return Sizes(len(own), len(peer), len(set(own) | set(peer)))


def is_ideal(
    active_ids: Sequence[bytes],
    passive_ids: Sequence[bytes],
    active: View,
    passive: View,
) -> bool:
    """Return whether both views agree with one bijection from the union to `0 … m-1`."""
    rank_of: dict[bytes, int] = {}
    for ids, view in ((active_ids, active), (passive_ids, passive)):
        for identifier, rank in zip(ids, view.rank_of_own.tolist(), strict=True):
            if rank_of.setdefault(identifier, rank) != rank:
                return False
    return (
        sorted(rank_of.values()) == list(range(active.sizes.union))
        and active.sizes == ideal_sizes(active_ids, passive_ids)
        and passive.sizes == ideal_sizes(passive_ids, active_ids)
        and active.digest == passive.digest
    )
