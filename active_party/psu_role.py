"""Algorithm 1 as the active party runs it."""

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
from florist.common.psu.sorted_streams import union_of, union_size

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.psu.alignment import UnionView
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link


def run_psu(link: Link, work: UnionWork, progress: Progress, table: str = "train") -> UnionView:
    """Take the active party's part in the union; what both have done before is not done again."""
    group, keys, ids = work.group, work.keys, work.ids
    peer, peer_rows = work.peer_size, work.peer_share
    s1, s2, s3 = keys.first, keys.second, keys.third
    s1s3, s2s3, s1s2s3 = group.product(s1, s3), group.product(s2, s3), group.product(s1, s2, s3)

    with ExchangePool(link, work, progress, table) as lanes:
        ours = lanes.start(
            ACTIVE_FIRST_ROUND, lambda lane: lane.originate_shuffled(ids.chunks(), len(ids), s1)
        )  # 3-4
        theirs = lanes.start(
            PASSIVE_FIRST_ROUND, lambda lane: lane.answer_shuffled(peer, s1)
        )  # 5-6
        uids = lanes.start(
            ACTIVE_HASHING, lambda lane: lane.originate_in_order(ids, before=s2, after=s1s3)
        )  # 11
        lanes.start(PASSIVE_HASHING, lambda lane: lane.answer_in_order(peer_rows, s1s2s3))  # 12

        def second_round(lane: ExchangeRun) -> StoredSet:
            a, b = ours.result(), theirs.result()
            count = union_size(a.chunks(), b.chunks(), group.width)
            merged = union_of(a.chunks(), b.chunks(), group.width)  # 7
            return lane.originate_shuffled(merged, count, s2s3)  # 8-10

        universe = lanes.start(SECOND_ROUND, second_round).result()
        compare_union(link.channel(f"{table}.psu.union"), universe)
        return own_view(work, universe, uids.result())
