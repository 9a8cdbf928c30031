"""The two protocols of a union: which exchanges they have, which party merges, what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.psu import algorithm_1
from florist.common.psu.merged import exchanges as merged
from florist.common.psu.merged.completing_party import run_completing
from florist.common.psu.merged.merging_party import run_merging
from florist.common.psu.uid_hashes import UID_BYTES

if TYPE_CHECKING:
    from typing import Protocol

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.common.psu.exchanges import Exchange
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.settings.union import ProtocolName
    from florist.common.transport.channel import Link

    class Algorithm1Role(Protocol):
        """A role's side of Algorithm 1."""

        def __call__(
            self, link: Link, work: UnionWork, progress: Progress, table: str
        ) -> UnionView: ...


#: The exchanges of each protocol.
EXCHANGES: dict[ProtocolName, tuple[Exchange, ...]] = {
    "algorithm-1": algorithm_1.EXCHANGES,
    "merged": merged.EXCHANGES,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of both padded sets, by role."""

    active: int
    passive: int

    @classmethod
    def of(cls, role: RoleName, own: int, peer: int) -> Sizes:
        """Return the sizes from the point of view of one party."""
        return cls(own, peer) if role == "active" else cls(peer, own)

    def by(self, role: RoleName) -> int:
        """Return the size of one party's set."""
        return self.active if role == "active" else self.passive


def merging_party(protocol: ProtocolName, sizes: Sizes) -> RoleName | None:
    """Return the party that merges; None for Algorithm 1.

    It is the one with which both parties together compute less: the one with the smaller set.
    """
    if protocol == "algorithm-1":
        return None
    roles: tuple[RoleName, RoleName] = ("active", "passive")
    return min(roles, key=lambda role: exponentiations(role, sizes, shared=0))


def merges(merging: RoleName | None, role: RoleName) -> bool | None:
    """Return whether a party merges; None for Algorithm 1."""
    return None if merging is None else merging == role


def exponentiations(merging: RoleName | None, sizes: Sizes, shared: int) -> int:
    """Return how many exponentiations both parties compute, planted pairs not counted."""
    both = sizes.active + sizes.passive
    if merging is None:
        return 5 * both + 2 * (both - shared)
    return 4 * both + 2 * sizes.by(merging) - 2 * shared


def own_exponentiations(merging: RoleName | None, role: RoleName, sizes: Sizes, shared: int) -> int:
    """Return how many of them one party computes."""
    if merging is not None:  # half of all, whoever merges
        return exponentiations(merging, sizes, shared) // 2
    both = sizes.active + sizes.passive
    return 2 * both + sizes.by(role) + (both - shared)


def traffic(merging: RoleName | None, sizes: Sizes, shared: int, width: int) -> int:
    """Return how many bytes both parties send, without framing; elements have `width` bytes."""
    both = sizes.active + sizes.passive
    union = both - shared
    if merging is None:
        return width * (4 * both + 2 * union)
    own = sizes.by(merging)
    # u, v and e; u' and w; the remainder; the hashes.
    return width * (2 * both + own + (own - shared)) + UID_BYTES * union


def run_union(
    role: RoleName,
    run_algorithm_1: Algorithm1Role,
    link: Link,
    work: UnionWork,
    progress: Progress,
    table: str,
) -> UnionView:
    """Run a role's side of the union, by the protocol that both parties have agreed on."""
    if work.merging is None:
        return run_algorithm_1(link, work, progress, table)
    run = run_merging if work.merging == role else run_completing
    return run(link, work, progress, table)
