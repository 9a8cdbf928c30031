"""What the union gives a party, and the checks at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.errors import ProtocolViolation
from florist.common.groups.element_sets import positions
from florist.common.messages import UnionDigest
from florist.common.psu.sorted_streams import Ascent, in_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.channel.channel import Channel
    from florist.common.groups.group import Elements
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.work import UnionWork


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


def compare_union(channel: Channel, universe: StoredSet) -> None:
    """After step 10: both say what they hold.

    Raises:
        ProtocolViolation: the peer holds another union.
    """
    ours = UnionDigest(len(universe), universe.facts.sha256)
    channel.send(ours)
    theirs = channel.receive(UnionDigest)
    if theirs != ours:
        raise ProtocolViolation(
            "check failed, both hold the same union: "
            f"{ours.size} UIDs here, {theirs.size} at the peer, digests "
            + ("equal" if ours.sha256 == theirs.sha256 else "differ")
        )


def own_view(work: UnionWork, universe: StoredSet, own_uids: StoredSet) -> UnionView:
    """Find each own UID in `U`: sorted, with the rows they belong to, they are joined with it.

    Raises:
        ProtocolViolation: one is not in `U`, or two are the same.
    """
    width = universe.width
    ranks = np.empty(len(own_uids), dtype=np.int64)
    with work.sorting(len(own_uids), width + _ROW_BYTES) as sorter:
        for row, chunk in _with_rows(own_uids.chunks()):
            sorter.add(_records(chunk, row))
        start = 0
        ascent = Ascent()
        for uids, records in in_step(universe.chunks(), sorter.blocks(), width):
            if len(records):
                wanted = np.ascontiguousarray(records[:, :width])
                if not ascent.goes_on_with(wanted):
                    raise ProtocolViolation("check failed, no two own IDs have the same UID")
                places = positions(uids, wanted) if len(uids) else np.array([-1])
                if np.any(places < 0):
                    raise ProtocolViolation("check failed, every own ID has a UID in the union")
                ranks[_rows(records)] = start + places
            start += len(uids)
    sizes = Sizes(len(own_uids), work.peer_size, len(universe))
    return UnionView(ranks, universe.facts.sha256, sizes)


#: A row number, after its UID.
_ROW_BYTES = 8


def _with_rows(chunks: Iterable[Elements]) -> Iterator[tuple[int, Elements]]:
    row = 0
    for chunk in chunks:
        yield row, chunk
        row += len(chunk)


def _records(uids: Elements, first_row: int) -> Elements:
    """Each UID with its row number behind it."""
    rows = np.arange(first_row, first_row + len(uids), dtype=">u8")
    return np.hstack([uids, rows.view(np.uint8).reshape(-1, _ROW_BYTES)])


def _rows(records: Elements) -> npt.NDArray[np.int64]:
    rows = np.ascontiguousarray(records[:, -_ROW_BYTES:]).view(">u8")[:, 0]
    return rows.astype(np.int64)
