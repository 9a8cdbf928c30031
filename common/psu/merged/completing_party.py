"""The completing party's side of the merged protocol. Comments give the steps of its description.

docs/concepts/merged-union.md describes the protocol and proves what it reveals.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.priority_pool import at_high_priority, low_priority
from florist.common.psu.exchange_pool import ExchangePool
from florist.common.psu.merged.exchanges import (
    COMPLETING_SET,
    MERGE,
    MERGING_SET,
    UNION,
    originate_merge,
    originate_union,
)
from florist.common.psu.ranks import (
    ROW_BYTES,
    first_rank,
    first_row,
    rank_bytes,
    row_numbers,
    store_ranks,
    with_rows,
)
from florist.common.psu.set_stream import rows_per_chunk
from florist.common.psu.sorted_streams import in_chunks
from florist.common.psu.stored_sets import Tally, temporary_set
from florist.common.psu.uid_hashes import uid_hashes
from florist.common.psu.union_view import compare_union, view_with
from florist.common.storage.element_sets import find_rows, sorted_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.core.progress import Progress
    from florist.common.groups.group import Exponent
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import SetFacts, StoredSet, TemporarySet
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Link

#: Anchors have row numbers from here on; our own rows have smaller ones.
ANCHOR_ROW = 1 << 61
#: The row number of elements that are not ours.
NO_ROW = 1 << 62


def run_completing(
    link: Link, work: UnionWork, progress: Progress, table: str = "train"
) -> UnionView:
    """Run the completing party's side; exchanges that both completed earlier are skipped."""
    group = work.group
    b, d = work.keys.first, work.keys.second

    def answer_peer(run: ExchangeRun) -> StoredSet:
        firsts = group.power(work.blinded(run.receive_anchors()), b)
        planted = np.concatenate([firsts, group.power(firsts, d)])
        count = run.receive_count(run.out, work.peer_size)
        return run.answer_and_keep(count, b, d, planted)

    def send_own(run: ExchangeRun) -> StoredSet:
        with low_priority():  # nobody waits for w^d before the union
            return send_sorted_and_keep_rows(run, b, d)

    def merge(run: ExchangeRun) -> StoredSet:
        returned, sent = peer_elements.result(), work.total("own elements", len(work.ids))
        whole = work.peer_size + work.planted.elements
        fewest = max(0, whole - sent - work.planted.count)
        return originate_merge(run, returned, fewest, d)

    def send_result(run: ExchangeRun) -> StoredSet:
        own, rest = own_elements.result(), remainder.result()
        check_planted_pairs(work, own, rest, d)
        return originate_union(run, with_uids(own, rest), len(own) + len(rest))

    with ExchangePool(link, work, progress, table) as pool:
        # Step 1: the peer's u = H(x)^a; step 2: e = u^b is kept, v = e^d returned, in order.
        peer_elements = pool.start(MERGING_SET, answer_peer)
        # Step 1: u' = H(y)^b, sorted; step 3 returns w = u'^{ac}, in order; step 4: w^d.
        own_elements = pool.start(COMPLETING_SET, send_own)
        # Step 2: e, sorted; step 3 returns (e \ E')^c, sorted; step 4: raised to d.
        remainder = pool.start(MERGE, merge)
        # Step 4: the hashes of U = (w and the remainder)^d, sorted.
        records = pool.start(UNION, send_result).result()
        universe = uid_facts(records)
        compare_union(link.channel(f"{table}.psu.union"), universe)
        # Our own places are those of w^d.
        ranks = store_ranks(work, own_ranks(work, records), len(work.ids))
        return view_with(work, universe, ranks)


def send_sorted_and_keep_rows(run: ExchangeRun, before: Exponent, after: Exponent) -> StoredSet:
    """Send our elements and the anchors, sorted by value; store what returns, each with its row.

    The order of our rows would tell the peer which of our rows are shared.
    """
    work, width = run.work, run.work.group.width
    anchors = work.blinded(work.anchors())
    ids, record = work.ids, width + ROW_BYTES
    with (
        work.sorting(run.out.label, len(ids) + len(anchors), record) as sorter,
        temporary_set(work.journal.storage, ROW_BYTES) as rows,
    ):
        own = at_high_priority(run.raised(ids.chunks(), before))
        first = first_row(work.partitions.number)
        planted = with_rows(run.raised([anchors], before), ANCHOR_ROW)
        for records in chain(with_rows(own, first), planted):
            sorter.add(records)
        count = sorter.complete()
        sizes = rows_per_chunk(width)
        elements = _without_rows(in_chunks(sorter.blocks(), sizes), width, rows)
        # They are read when all elements are sent.
        kept_rows = in_chunks(rows.chunks(), sizes)
        return run.originate_in_order(
            elements, count, after, lambda raised: np.hstack([raised, next(kept_rows)]), record
        )


def _without_rows(chunks: Iterable[Elements], width: int, rows: TemporarySet) -> Iterator[Elements]:
    for records in chunks:
        rows.append(np.ascontiguousarray(records[:, width:]))
        yield np.ascontiguousarray(records[:, :width])


def with_uids(own: StoredSet, rest: StoredSet) -> Iterator[Elements]:
    """Yield the UIDs of the union, each with its row; those of the remainder have none of ours."""
    for records in own.chunks():
        yield np.hstack([uid_hashes(records[:, :-ROW_BYTES]), records[:, -ROW_BYTES:]])
    for chunk in rest.chunks():
        nobody = rank_bytes(np.full(len(chunk), NO_ROW))
        yield np.hstack([uid_hashes(chunk), nobody])


def uid_facts(records: StoredSet) -> SetFacts:
    """Return the facts of the union, without the rows that are stored with it."""
    tally = Tally()
    for chunk in records.chunks():
        tally.add(np.ascontiguousarray(chunk[:, :-ROW_BYTES]))
    return tally.facts


def own_ranks(work: UnionWork, records: StoredSet) -> Iterator[Elements]:
    """Yield the row of each of our UIDs with its rank."""
    start = first_rank(work, len(records))
    for chunk in records.chunks():
        ours = np.flatnonzero(row_numbers(chunk) < ANCHOR_ROW)
        yield np.hstack([chunk[ours, -ROW_BYTES:], rank_bytes(start + ours)])
        start += len(chunk)


def check_planted_pairs(work: UnionWork, own: StoredSet, rest: StoredSet, d: Exponent) -> None:
    """Check that each pair is intact: an anchor that has returned, and what was planted with it.

    Raised to `d` once more, the former is what the latter has been raised to.

    Raises:
        ProtocolViolation: some pairs are not.
    """
    if not work.planted.count:
        return
    width, group = work.group.width, work.group
    with work.sorting("planted pairs", work.planted.count) as sorter:
        for records in own.chunks():
            sorter.add(np.ascontiguousarray(records[row_numbers(records) >= ANCHOR_ROW, :width]))
        sorter.complete()
        empty = np.empty((0, width), dtype=np.uint8)
        returned = np.concatenate([empty, *sorter.blocks()])
    expected = sorted_set(group.power(returned, d))
    intact = sum(int(np.count_nonzero(find_rows(expected, chunk) >= 0)) for chunk in rest.chunks())
    work.planted.check(work.total("intact pairs", intact))
