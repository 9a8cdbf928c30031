"""Algorithm 1 as the active party runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.groups.element_sets import union
from florist.common.psu.alignment import check_same_count, compare_union, own_view
from florist.common.psu.exchanges import (
    ACTIVE_FIRST_ROUND,
    ACTIVE_HASHING,
    PASSIVE_FIRST_ROUND,
    PASSIVE_HASHING,
    SECOND_ROUND,
)
from florist.common.psu.lanes import Lanes

if TYPE_CHECKING:
    from florist.common.channel.channel import Link
    from florist.common.groups.group import Elements, Group
    from florist.common.progress import Progress
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.exchanges import Lane
    from florist.common.psu.keys import Keys


def run_psu(
    link: Link, group: Group, ids: Elements, keys: Keys, progress: Progress, table: str = "train"
) -> UnionView:
    """Take the active party's part; `ids` are its hashed IDs, dummies included, in row order."""
    s1, s2, s3 = keys.first, keys.second, keys.third
    s1s3, s2s3, s1s2s3 = group.product(s1, s3), group.product(s2, s3), group.product(s1, s2, s3)

    with Lanes(link, group, progress, table) as lanes:
        ours = lanes.start(ACTIVE_FIRST_ROUND, lambda lane: lane.originate_shuffled(ids, s1))  # 3-4
        theirs = lanes.start(PASSIVE_FIRST_ROUND, lambda lane: lane.answer_shuffled(s1))  # 5-6
        uids = lanes.start(
            ACTIVE_HASHING, lambda lane: lane.originate_in_order(ids, before=s2, after=s1s3)
        )  # 11
        answered = lanes.start(PASSIVE_HASHING, lambda lane: lane.answer_in_order(s1s2s3))  # 12

        def second_round(lane: Lane) -> tuple[Elements, bytes]:
            merged = union(ours.result(), theirs.result())  # 7
            universe = lane.originate_shuffled(merged, s2s3)  # 8-10
            return universe, compare_union(lane, universe)

        universe, digest = lanes.start(SECOND_ROUND, second_round).result()
        peer = len(theirs.result())
        check_same_count("the peer's IDs in steps 5 and 12", peer, answered.result())
        return own_view(universe, uids.result(), digest, peer)
