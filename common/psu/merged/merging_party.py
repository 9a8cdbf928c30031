"""The merging party's side of the merged protocol. Comments give the steps of its description.

docs/concepts/merged-union.md describes the protocol and proves what it reveals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.priority_pool import at_high_priority, low_priority
from florist.common.psu.exchange_pool import ExchangePool
from florist.common.psu.merged.exchanges import (
    COMPLETING_SET,
    MERGE,
    MERGING_SET,
    UNION,
    answer_merge,
    receive_union,
)
from florist.common.psu.ranks import first_row, with_rows
from florist.common.psu.uid_hashes import uid_hashes
from florist.common.psu.union_view import compare_union, own_view

if TYPE_CHECKING:
    from florist.common.core.progress import Progress
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link


def run_merging(link: Link, work: UnionWork, progress: Progress, table: str = "train") -> UnionView:
    """Run the merging party's side; exchanges that both parties completed earlier are skipped."""
    ids, planted = work.ids, work.planted
    a, c = work.keys.first, work.keys.second
    nothing = np.empty((0, work.group.width), dtype=np.uint8)
    peer_whole = work.peer_size + planted.count

    def send_own(run: ExchangeRun) -> StoredSet:
        run.send_anchors(a)
        with low_priority():  # nobody but us needs v^c, and not before the end
            u = at_high_priority(run.raised(ids.chunks(), a))
            return run.originate_in_order(u, len(ids), after=c)

    def answer_peer(run: ExchangeRun) -> StoredSet:
        count = run.receive_count(run.out, peer_whole)
        return run.answer_and_keep(count, a, c, nothing, order=work.ascending_check())

    def merge(run: ExchangeRun) -> StoredSet:
        own_whole = work.total("own elements", len(ids)) + planted.elements
        return answer_merge(run, own_whole, peer_elements.result(), c)

    def receive_result(run: ExchangeRun) -> StoredSet:
        rest = work.total("remainder", len(remainder.result()))
        return receive_union(run, peer_whole + rest)

    with ExchangePool(link, work, progress, table) as pool:
        # Step 1: u = H(x)^a, in order; step 2 returns v = u^{bd}, in order; step 5: v^c.
        own_elements = pool.start(MERGING_SET, send_own)
        # Step 1: the peer's u' = H(y)^b, sorted; step 3: E' = u'^a is kept, w = E'^c returned.
        peer_elements = pool.start(COMPLETING_SET, answer_peer)
        # Step 2: e = u^b, sorted; step 3 returns (e \ E')^c, sorted.
        remainder = pool.start(MERGE, merge)
        # Step 4: the hashes of U = (w and the remainder)^d, sorted.
        universe = pool.start(UNION, receive_result).result()
        compare_union(link.channel(f"{table}.psu.union"), universe.facts)
        # Step 5: our own places are those of v^c.
        uids = map(uid_hashes, own_elements.result().chunks())
        return own_view(work, universe, with_rows(uids, first_row(work.partitions.number)))
