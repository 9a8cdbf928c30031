"""The passive party's side of Algorithm 1, private set union. Comments give the paper's steps."""

from __future__ import annotations

from itertools import chain
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
from florist.common.psu.sorted_streams import union_size
from florist.common.psu.union_view import compare_union, own_view

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link


def run_psu(link: Link, work: UnionWork, progress: Progress, table: str = "train") -> UnionView:
    """Run the passive party's side; exchanges that both parties completed earlier are skipped."""
    group, width, ids = work.group, work.group.width, work.ids
    # Step 2: the secret exponents, and the products of them that later steps use.
    t1, t2, t3 = work.keys.first, work.keys.second, work.keys.third
    t1t3, t2t3, t1t2t3 = group.product(t1, t3), group.product(t2, t3), group.product(t1, t2, t3)

    def answer_peer_first_round(run: ExchangeRun) -> StoredSet:
        planted = group.power(work.blinded(run.receive_anchors()), t1t2t3)
        return run.answer_shuffled(work.peer_size, t1, added=planted)

    def send_own_first_round(run: ExchangeRun) -> StoredSet:
        anchors = work.blinded(work.anchors())
        own = chain(ids.chunks(), [anchors])
        return run.originate_shuffled(own, len(ids) + len(anchors), t1)

    def answer_second_round(run: ExchangeRun) -> StoredSet:
        peer, own = peer_first_round.result(), own_first_round.result()
        count = union_size(peer.chunks(), own.chunks(), width)
        return run.answer_planted(work.total("the union", count), t2t3, work.planted)

    def answer_peer_hashing(run: ExchangeRun) -> None:
        run.answer_in_order(work.peer_share, t1t2t3)

    def hash_own(run: ExchangeRun) -> StoredSet:
        return run.originate_in_order(run.raised(ids.chunks(), t2), len(ids), after=t1t3)

    with ExchangePool(link, work, progress, table) as pool:
        # First round hashing: steps 3-4, and 5-6.
        peer_first_round = pool.start(ACTIVE_FIRST_ROUND, answer_peer_first_round)
        own_first_round = pool.start(PASSIVE_FIRST_ROUND, send_own_first_round)
        # Computing private hashing, which does not need the rounds: step 11, and 12.
        pool.start_answering(ACTIVE_HASHING, answer_peer_hashing)
        own_uids = pool.start(PASSIVE_HASHING, hash_own)
        # Second round hashing: steps 8-9; the result is sorted, as in step 10.
        universe = pool.start(SECOND_ROUND, answer_second_round).result()
        compare_union(link.channel(f"{table}.psu.union"), universe.facts)
        uids = own_uids.result().chunks()
        return own_view(work, universe, with_rows(uids, first_row(work.partitions.number)))
