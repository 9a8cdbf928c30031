"""The active party's side of Algorithm 1, private set union. Comments give the paper's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.psu.algorithm_1 import (
    ACTIVE_FIRST_ROUND,
    ACTIVE_HASHING,
    PASSIVE_FIRST_ROUND,
    PASSIVE_HASHING,
    SECOND_ROUND,
)
from florist.common.psu.exchange_pool import ExchangePool
from florist.common.psu.ranks import first_row, with_rows
from florist.common.psu.sorted_streams import union_of, union_size
from florist.common.psu.union_view import compare_union, own_view

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link


def run_psu(link: Link, work: UnionWork, progress: Progress, table: str = "train") -> UnionView:
    """Run the active party's side; exchanges that both parties completed earlier are skipped."""
    group, width, ids = work.group, work.group.width, work.ids
    # Step 1: the secret exponents, and the products of them that later steps use.
    s1, s2, s3 = work.keys.first, work.keys.second, work.keys.third
    s1s3, s2s3, s1s2s3 = group.product(s1, s3), group.product(s2, s3), group.product(s1, s2, s3)

    def send_own_first_round(run: ExchangeRun) -> StoredSet:
        run.send_anchors(s1)
        return run.originate_shuffled(ids.chunks(), len(ids), s1, added=work.planted.count)

    def answer_peer_first_round(run: ExchangeRun) -> StoredSet:
        return run.answer_shuffled(work.peer_size + work.planted.count, s1)

    def merge_and_send_second_round(run: ExchangeRun) -> StoredSet:
        own, peer = own_first_round.result(), peer_first_round.result()
        count = union_size(own.chunks(), peer.chunks(), width)
        merged = union_of(own.chunks(), peer.chunks(), width)
        return run.originate_shuffled(merged, count, s2s3)

    def hash_own(run: ExchangeRun) -> StoredSet:
        return run.originate_in_order(run.raised(ids.chunks(), s2), len(ids), after=s1s3)

    def answer_peer_hashing(run: ExchangeRun) -> None:
        run.answer_in_order(work.peer_share, s1s2s3)

    with ExchangePool(link, work, progress, table) as pool:
        # First round hashing: steps 3-4, and 5-6.
        own_first_round = pool.start(ACTIVE_FIRST_ROUND, send_own_first_round)
        peer_first_round = pool.start(PASSIVE_FIRST_ROUND, answer_peer_first_round)
        # Computing private hashing, which does not need the rounds: step 11, and 12.
        own_uids = pool.start(ACTIVE_HASHING, hash_own)
        pool.start_answering(PASSIVE_HASHING, answer_peer_hashing)
        # Second round hashing: step 7 merges, steps 8-9; the result is sorted, as in step 10.
        universe = pool.start(SECOND_ROUND, merge_and_send_second_round).result()
        compare_union(link.channel(f"{table}.psu.union"), universe.facts)
        uids = own_uids.result().chunks()
        return own_view(work, universe, with_rows(uids, first_row(work.partitions.number)))
