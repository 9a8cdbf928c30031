"""Algorithm 1 as the passive party runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.groups.element_sets import intersection_size
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
    """Take the passive party's part; `ids` are its hashed IDs, dummies included, in row order."""
    t1, t2, t3 = keys.first, keys.second, keys.third
    t1t3, t2t3, t1t2t3 = group.product(t1, t3), group.product(t2, t3), group.product(t1, t2, t3)

    with Lanes(link, group, progress, table) as lanes:
        theirs = lanes.start(ACTIVE_FIRST_ROUND, lambda lane: lane.answer_shuffled(t1))  # 3-4
        ours = lanes.start(
            PASSIVE_FIRST_ROUND, lambda lane: lane.originate_shuffled(ids, t1)
        )  # 5-6
        answered = lanes.start(ACTIVE_HASHING, lambda lane: lane.answer_in_order(t1t2t3))  # 11
        uids = lanes.start(
            PASSIVE_HASHING, lambda lane: lane.originate_in_order(ids, before=t2, after=t1t3)
        )  # 12

        def second_round(lane: Lane) -> tuple[Elements, bytes]:
            universe = lane.answer_shuffled(t2t3)  # 8-10
            return universe, compare_union(lane, universe)

        universe, digest = lanes.start(SECOND_ROUND, second_round).result()
        peer = len(theirs.result())
        check_same_count("the peer's IDs in steps 3 and 11", peer, answered.result())
        shared = intersection_size(theirs.result(), ours.result())
        check_same_count(
            "the size of the union, by steps 4 and 6 and by step 9",
            peer + len(ids) - shared,
            len(universe),
        )
        return own_view(universe, uids.result(), digest, peer)
