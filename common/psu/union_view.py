"""The result of a union for one party, and the checks at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import ProtocolViolation
from florist.common.psu.ranks import find_ranks
from florist.common.session.union_sizes import UnionSizes
from florist.common.transport.messages import UnionDigest

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.common.privacy.commitment import StoredCommitment
    from florist.common.psu.ranks import StoredRanks
    from florist.common.psu.stored_sets import SetFacts, StoredSet
    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Channel


@dataclass(frozen=True, slots=True, eq=False)
class UnionView:
    """The output of a union for one party.

    The elements of `U` are not kept: from here on a UID is its rank, its index in the sorted `U`.
    """

    ranks: StoredRanks
    digest: bytes
    sizes: UnionSizes
    #: Both parties' commitments to their sets; the runner of the union adds them.
    commitment: StoredCommitment | None = None
    #: The party that merged; None by Algorithm 1. The runner of the union adds it.
    merging: RoleName | None = None

    @property
    def rank_of_own(self) -> npt.NDArray[np.int64]:
        """The rank of the party's element `i` at index `i`; reads all into memory."""
        return self.ranks.all()


def compare_union(channel: Channel, universe: SetFacts) -> None:
    """Compare the union with the peer's, once both have it.

    Raises:
        ProtocolViolation: the peer has a different union.
    """
    ours = UnionDigest(universe.count, universe.sha256)
    channel.send(ours)
    theirs = channel.receive(UnionDigest)
    if theirs != ours:
        raise ProtocolViolation(
            "the final check failed: the parties have different unions: "
            f"{ours.size} UIDs here, {theirs.size} at the peer, digests "
            + ("equal" if ours.sha256 == theirs.sha256 else "differ")
        )


def own_view(work: UnionWork, universe: StoredSet, own_uids: Iterable[Elements]) -> UnionView:
    """Return our view of the union, with the ranks of our own elements.

    `own_uids` has the UIDs of our rows, each with its row (`ranks.with_rows`). With several
    partitions, the ranks are those of our rows, and the digest is that of our range; the sizes are
    those of the whole.

    Raises:
        ProtocolViolation: a UID is not in the union, or two are equal.
    """
    ranks = find_ranks(work, universe, own_uids, len(work.ids))
    return view_with(work, universe.facts, ranks)


def view_with(work: UnionWork, universe: SetFacts, ranks: StoredRanks) -> UnionView:
    """Return our view of the union, with the ranks of our own elements."""
    own = work.total("own size", len(work.ids))
    union = work.total("size of the union", universe.count)
    sizes = UnionSizes(own, work.peer_size, union, work.planted.elements)
    return UnionView(ranks, universe.sha256, sizes)
