"""Algorithm 1 as the passive party runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.psu.alignment import compare_union, own_view
from florist.common.psu.exchange_pool import ExchangePool
from florist.common.psu.exchanges import (
    ACTIVE_FIRST_ROUND,
    ACTIVE_HASHING,
    PASSIVE_FIRST_ROUND,
    PASSIVE_HASHING,
    SECOND_ROUND,
)
from florist.common.psu.sorted_streams import union_size

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link


def run_psu(link: Link, work: UnionWork, progress: Progress, table: str = "train") -> UnionView:
    """Take the passive party's part in the union; what both have done before is not done again."""
    group, keys, ids = work.group, work.keys, work.ids
    peer, peer_rows = work.peer_size, work.peer_share
    t1, t2, t3 = keys.first, keys.second, keys.third
    t1t3, t2t3, t1t2t3 = group.product(t1, t3), group.product(t2, t3), group.product(t1, t2, t3)

    with ExchangePool(link, work, progress, table) as lanes:
        theirs = lanes.start(ACTIVE_FIRST_ROUND, lambda lane: lane.answer_shuffled(peer, t1))  # 3-4
        ours = lanes.start(
            PASSIVE_FIRST_ROUND, lambda lane: lane.originate_shuffled(ids.chunks(), len(ids), t1)
        )  # 5-6
        lanes.start(ACTIVE_HASHING, lambda lane: lane.answer_in_order(peer_rows, t1t2t3))  # 11
        uids = lanes.start(
            PASSIVE_HASHING, lambda lane: lane.originate_in_order(ids, before=t2, after=t1t3)
        )  # 12

        def second_round(lane: ExchangeRun) -> StoredSet:
            a, b = theirs.result(), ours.result()
            count = union_size(a.chunks(), b.chunks(), group.width)
            return lane.answer_shuffled(work.total("the union", count), t2t3)  # 8-10

        universe = lanes.start(SECOND_ROUND, second_round).result()
        compare_union(link.channel(f"{table}.psu.union"), universe)
        return own_view(work, universe, uids.result())
