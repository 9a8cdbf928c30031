"""What the union gives a party, and the checks at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.errors import ProtocolViolation
from florist.common.groups.element_sets import positions, sha256
from florist.common.messages import UnionDigest

if TYPE_CHECKING:
    from florist.common.groups.group import Elements
    from florist.common.psu.exchanges import Lane


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that both parties know: of the padded sets, where dummies are used."""

    own: int
    peer: int
    union: int

    @property
    def shared(self) -> int:
        """`|I_a ∩ I_p|`: the leak that the protocol admits."""
        return self.own + self.peer - self.union


@dataclass(frozen=True, slots=True, eq=False)
class UnionView:
    """What Algorithm 1 gives one party.

    `rank_of_own[i]` is the position in the sorted `U` of the party's element `i`. The elements of
    `U` themselves are not kept: from here on a UID is its rank.
    """

    rank_of_own: npt.NDArray[np.int64]
    digest: bytes
    sizes: Sizes


def compare_union(lane: Lane, universe: Elements) -> bytes:
    """After step 10: both say what they hold; return its digest.

    Raises:
        ProtocolViolation: the peer holds another union.
    """
    ours = UnionDigest(len(universe), sha256(universe))
    lane.channel.send(ours)
    theirs = lane.channel.receive(UnionDigest)
    if theirs != ours:
        raise ProtocolViolation(
            "check failed, both hold the same union: "
            f"{ours.size} UIDs here, {theirs.size} at the peer, digests "
            + ("equal" if ours.sha256 == theirs.sha256 else "differ")
        )
    return ours.sha256


def own_view(universe: Elements, own_uids: Elements, digest: bytes, peer: int) -> UnionView:
    """Find each own UID in `U`.

    Raises:
        ProtocolViolation: one is not in `U`, or two are the same.
    """
    ranks = positions(universe, own_uids)
    if np.any(ranks < 0):
        raise ProtocolViolation("check failed, every own ID has a UID in the union")
    if len(np.unique(ranks)) != len(ranks):
        raise ProtocolViolation("check failed, no two own IDs have the same UID")
    return UnionView(ranks, digest, Sizes(len(ranks), peer, len(universe)))


def check_same_count(title: str, first: int, second: int) -> None:
    """The peer must use one set throughout.

    Raises:
        ProtocolViolation: it announced another size the second time.
    """
    if first != second:
        raise ProtocolViolation(f"check failed, {title}: {first} and then {second}")
