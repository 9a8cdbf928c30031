"""The exchanges of the merged protocol, and the two kinds that only it has: *merge* and *union*.

In the merge, the completing party sends the merging party's elements back without an order; those
that the completing party lacks return. The union is sent as hashes, in one direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.core.priority_pool import high_priority
from florist.common.psu.exchanges import Exchange
from florist.common.psu.ranks import ROW_BYTES
from florist.common.psu.set_stream import (
    receive_count,
    require_shuffled,
    rows_per_chunk,
    send_chunks,
    send_header,
)
from florist.common.psu.sorted_streams import AscendingCheck, difference_of, in_chunks
from florist.common.psu.stored_sets import SetFacts, Tally
from florist.common.psu.uid_hashes import UID_BYTES
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.groups.group import Exponent
    from florist.common.psu.exchanges import ExchangeRun
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.storage.elements import Elements

MERGING_SET = Exchange(
    "psu.merging-set",
    "steps 1-2: the merging party's IDs",
    Step.MERGING_SET,
    Step.MERGING_SET_BACK,
)
COMPLETING_SET = Exchange(
    "psu.completing-set",
    "steps 1 and 3: the completing party's IDs",
    Step.COMPLETING_SET,
    Step.COMPLETING_SET_BACK,
)
MERGE = Exchange(
    "psu.merge",
    "steps 2-3: merging both sets",
    Step.MERGE,
    Step.REMAINDER,
)
UNION = Exchange("psu.union-hashes", "step 4: the union", Step.UNION, None)

EXCHANGES = (MERGING_SET, COMPLETING_SET, MERGE, UNION)


@high_priority()
def answer_merge(run: ExchangeRun, whole: int, peer: StoredSet, exponent: Exponent) -> StoredSet:
    """Receive our elements, and return those that are not among the peer's, raised and shuffled.

    Args:
        run: the exchange.
        whole: how many of our elements come back, planted ones included.
        peer: the peer's elements under the same exponents, sorted.
        exponent: for the elements that return.

    Returns:
        The size of the remainder, as a set whose elements are not stored.
    """
    out, work, tally, order = run.out, run.work, Tally(), run.work.ascending_check()
    coming = run.receive_count(out, whole)

    def received() -> Iterator[Elements]:
        for chunk in work.executor.checked(run.received(out, coming)):
            require_shuffled(out, order, chunk)
            tally.add(chunk)
            yield chunk

    run.progress.expect(coming)
    with work.sorting(out.label, coming) as sorter:
        remainder = difference_of(received(), peer.chunks(), work.group.width)
        # In chunks, because small pieces would be raised inefficiently.
        for raised in run.raised(in_chunks(remainder, rows_per_chunk(work.group.width)), exponent):
            sorter.add(raised)
        work.journal.check_received(out, tally.facts)
        count = run.send_sorted(run.back, sorter)
    return work.finish(out, SetFacts(count, b""))


@high_priority()
def originate_merge(
    run: ExchangeRun, elements: StoredSet, fewest: int, exponent: Exponent
) -> StoredSet:
    """Send the merging party's elements; store those that return, raised to `exponent`.

    With several partitions, they return in the order of the peer's shuffle, in our range.

    Args:
        run: the exchange.
        elements: what we have of the merging party's elements, planted ones included, sorted.
        fewest: how many of all partitions' elements must return at least.
        exponent: for the elements that return.
    """
    out, back, work, tally = run.out, run.back, run.work, Tally()
    run.send_stored(out, elements)
    coming = receive_count(run.channel, back)
    run.progress.expect(coming)
    most = work.total(f"{out.label}: elements", len(elements))
    announced = work.total(f"{back.label}: coming", coming)
    if not fewest <= announced <= most:
        raise ProtocolViolation(
            f"step {back.label}: the peer announces {announced} elements, which is not between "
            f"{fewest} and {most}"
        )
    with work.storing(out) as writer:
        chunks = run.received(back, coming)
        for chunk, raised in run.with_raised(back, chunks, exponent, work.ascending_check()):
            tally.add(chunk)
            writer.append(raised)
    work.journal.check_received(back, tally.facts)
    return work.finish(out, writer.tally.facts)


@high_priority()
def originate_union(run: ExchangeRun, records: Iterable[Elements], count: int) -> StoredSet:
    """Send the union, sorted, and store it with rows.

    `records` are the `count` UIDs of the union, each with its row, or what stands for a row.
    """
    out, work, width, distinct = run.out, run.work, UID_BYTES + ROW_BYTES, AscendingCheck()
    with work.sorting(out.label, count, width) as sorter:
        for each in records:
            sorter.add(each)
        sorter.complete()
        with work.storing(out) as writer:
            for block in sorter.blocks():
                if not distinct.accepts(np.ascontiguousarray(block[:, :UID_BYTES])):
                    raise ProtocolViolation(f"step {out.label}: elements of the union collide")
                writer.append(block)
    # Nothing is sent before all of it is checked.
    union = work.stored(out, writer.tally.facts, width)
    send_header(run.channel, out, len(union))
    uids = (np.ascontiguousarray(block[:, :UID_BYTES]) for block in union.chunks())
    send_chunks(run.channel, out, in_chunks(uids, rows_per_chunk(UID_BYTES)))
    return work.finish(out, union.facts, width)


@high_priority()
def receive_union(run: ExchangeRun, whole: int) -> StoredSet:
    """Receive and store the union, which has `whole` UIDs."""
    out, work, order = run.out, run.work, run.work.ascending_check()
    coming = run.receive_count(out, whole)
    with work.storing(out) as writer:
        for chunk in run.received(out, coming, UID_BYTES):
            require_shuffled(out, order, chunk)
            writer.append(chunk)
    # A second union with another person left out would tell the peer about that person.
    work.journal.check_received(out, writer.tally.facts)
    return work.finish(out, writer.tally.facts, UID_BYTES)
