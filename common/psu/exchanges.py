"""The exchanges of a union. Each has an originator and an answerer; a party is either in turn.

Two kinds cover Algorithm 1, and most of the merged protocol:

*shuffled*  a whole set is sent shuffled, and returned raised and shuffled;
*in order*  elements are sent in order, and returned raised, in the same order.

A shuffle is a sort of the whole set by encoded value: it keeps nothing of the previous order, and
the receiver can check it, together with distinctness, in one pass. Elements are raised chunk by
chunk as they arrive, but no chunk of a shuffled set is sent before the whole set has arrived.

Exchanges need each other's results, and while one party raises the union, the other waits for it.
So those that others wait for have priority wherever something is computed, and the rest uses the
time that these leave idle.

What the peer sends is recorded before any answer to it is sent: in a later attempt at the same
union, under the same secrets, nothing else is answered.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.core.priority_pool import high_priority
from florist.common.psu.set_stream import (
    receive_chunks,
    receive_count,
    receive_header,
    require_shuffled,
    rows_per_chunk,
    send_chunk,
    send_chunks,
    send_header,
    wrong_count,
)
from florist.common.psu.sorted_streams import AscendingCheck, in_chunks, in_step
from florist.common.psu.stored_sets import SetFacts, StoredSet, Tally, spooled, temporary_set
from florist.common.storage.element_sets import intersection_size
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.core.progress import StepProgress
    from florist.common.groups.group import Exponent
    from florist.common.psu.planted_pairs import PlantedPairs
    from florist.common.psu.shared_sorting import SetSorter
    from florist.common.psu.stored_sets import TemporarySet
    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Channel


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange: its channel, its title in progress reports, and its steps out and back."""

    channel: str
    title: str
    out: Step
    #: None if nothing comes back.
    back: Step | None


@dataclass(frozen=True, slots=True)
class ExchangeRun:
    """One exchange as a party runs it."""

    exchange: Exchange
    channel: Channel
    work: UnionWork
    #: Counts exponentiations; `advance` raises the error of a link that has failed.
    progress: StepProgress

    @property
    def out(self) -> Step:
        return self.exchange.out

    @property
    def back(self) -> Step:
        assert self.exchange.back is not None
        return self.exchange.back

    # -- shuffled ----------------------------------------------------------------------------------

    @high_priority()
    def originate_shuffled(
        self, chunks: Iterable[Elements], count: int, exponent: Exponent, added: int = 0
    ) -> StoredSet:
        """Raise, shuffle and send the set; store what comes back, raised and shuffled by the peer.

        `chunks` has `count` elements. The peer adds `added` elements of its own to what it returns.
        With several partitions, they shuffle their sets together.
        """
        out, back = self.out, self.back
        whole = self.work.total(f"{out.label}: elements", count)
        self.progress.expect(count)
        with self.work.sorting(out.label, count) as sorter:
            for raised in self.raised(chunks, exponent):
                sorter.add(raised)
            self.send_sorted(out, sorter)
        coming = self.receive_count(back, whole + added)
        order = self.work.ascending_check()
        with self.work.storing(out) as writer:
            for chunk in self.work.executor.checked(self.received(back, coming)):
                require_shuffled(back, order, chunk)
                writer.append(chunk)
        self.work.journal.check_received(back, writer.tally.facts)
        return self.work.finish(out, writer.tally.facts)

    @high_priority()
    def answer_shuffled(
        self, whole: int, exponent: Exponent, added: Elements | None = None
    ) -> StoredSet:
        """Receive a shuffled set of `whole` elements; raise, shuffle, send and store it.

        `added` elements are shuffled into the answer. With several partitions, we receive, send and
        store the elements in our range.
        """
        out, back = self.out, self.back
        coming = self.receive_count(out, whole)
        extra = 0 if added is None else len(added)
        with self.work.sorting(out.label, coming + extra) as sorter:
            self._receive_into(sorter, coming, exponent)
            if added is not None:
                sorter.add(added)
            send_header(self.channel, back, sorter.complete())
            with self.work.storing(out) as writer:
                send_chunks(self.channel, back, writer.appended(self._distinct(sorter)))
        return self.work.finish(out, writer.tally.facts)

    @high_priority()
    def answer_planted(self, whole: int, exponent: Exponent, pairs: PlantedPairs) -> StoredSet:
        """Answer as `answer_shuffled` does, after checking that all planted pairs are intact.

        Raising the first element of a pair to `exponent` gives the second. Nothing is sent before
        the check, so that a peer that fails it learns nothing.
        """
        if not pairs.count:
            return self.answer_shuffled(whole, exponent)
        out, back = self.out, self.back
        coming = self.receive_count(out, whole)
        intact = 0
        with (
            temporary_set(self.work.journal.storage, self.work.group.width) as received,
            self.work.sorting(out.label, coming) as sorter,
        ):
            self._receive_into(sorter, coming, exponent, received)
            sorter.complete()
            raised = self._distinct(sorter)
            with self.work.storing(out) as writer:
                for before, after in in_step(received.chunks(), raised, self.work.group.width):
                    if len(after):
                        writer.append(after)
                        intact += intersection_size(before, after) if len(before) else 0
        pairs.check(self.work.total("intact pairs", intact))
        answer = self.work.stored(out, writer.tally.facts)
        self.send_stored(back, answer)
        return self.work.finish(out, answer.facts)

    # -- in order ----------------------------------------------------------------------------------

    def originate_in_order(
        self,
        chunks: Iterable[Elements],
        count: int,
        after: Exponent,
        kept: Callable[[Elements], Elements] = lambda rows: rows,
        kept_width: int | None = None,
    ) -> StoredSet:
        """Send the elements; store what comes back, raised to `after`.

        Args:
            chunks: the `count` elements to send, as many at a time as one message holds.
            count: how many there are.
            after: the exponent for what comes back.
            kept: turns each chunk, in order, into the rows to store.
            kept_width: bytes of such a row; by default it is an element.
        """
        out, back = self.out, self.back
        self.progress.expect(2 * count)
        send_header(self.channel, out, count)
        receive_header(self.channel, back, count)
        tally = Tally()
        # The peer never waits for us to read what it returns, and so always reads what we send.
        with (
            self._spooled(self._tallied(self.received(back, count), tally)) as answers,
            self.work.storing(out) as writer,
        ):
            send_chunks(self.channel, out, chunks)
            for chunk in self.raised(answers, after, check=True):
                writer.append(kept(chunk))
        self.work.journal.check_received(back, tally.facts)
        return self.work.finish(out, writer.tally.facts, kept_width)

    def answer_in_order(self, count: int, exponent: Exponent) -> None:
        """Raise each chunk of a set of `count` elements and send it back at once."""
        out, journal = self.out, self.work.journal
        receive_header(self.channel, out, count)
        self.progress.expect(count)
        pairs = self.with_raised(out, self.received(out, count), exponent)
        self._send_back(self._journalled(pairs), count)
        journal.finish(out, SetFacts(count, b""))

    def answer_and_keep(
        self,
        count: int,
        kept: Exponent,
        further: Exponent,
        added: Elements,
        order: AscendingCheck | None = None,
    ) -> StoredSet:
        """Raise each chunk to `kept` and to `further`, and send it back at once.

        Stores the elements raised to `kept` alone, and the `added` ones, shuffled. With `order`,
        the peer's elements must be sorted.
        """
        out = self.out
        self.progress.expect(2 * count)
        with (
            self._spooled(self.received(out, count)) as received,
            self.work.sorting(out.label, count + len(added)) as sorter,
        ):

            def keep() -> Iterator[Elements]:
                pairs = self.with_raised(out, received, kept, order)
                for raised in self._journalled(pairs):
                    sorter.add(raised)
                    yield raised

            self._send_back(self.raised(keep(), further), count)
            sorter.add(added)
            sorter.complete()
            with self.work.storing(out) as writer:
                for chunk in self._distinct(sorter):
                    writer.append(chunk)
        return self.work.finish(out, writer.tally.facts)

    def _send_back(self, chunks: Iterable[Elements], count: int) -> None:
        send_header(self.channel, self.back, count)
        send_chunks(self.channel, self.back, chunks)

    def _journalled(self, pairs: Iterable[tuple[Elements, Elements]]) -> Iterator[Elements]:
        """Yield the second chunk of each pair, after recording the first, as it was received."""
        for number, (chunk, raised) in enumerate(pairs):
            self.work.journal.check_chunk(self.out, number, chunk)
            yield raised

    # -- planted pairs -----------------------------------------------------------------------------

    def send_anchors(self, exponent: Exponent) -> None:
        """Send the anchors of planted pairs raised to `exponent`, before the exchange starts."""
        anchors, rows = self.work.anchors(), rows_per_chunk(self.work.group.width)
        for start in range(0, len(anchors), rows):
            raised = self.work.group.power(anchors[start : start + rows], exponent)
            send_chunk(self.channel, Step.ANCHORS, start, raised)

    def receive_anchors(self) -> Elements:
        """Return the anchors as the peer has raised them."""
        group, tally, count = self.work.group, Tally(), len(self.work.anchors())
        anchors = [np.empty((0, group.width), dtype=np.uint8)]
        for chunk in self.received(Step.ANCHORS, count):
            group.validate(chunk)
            tally.add(chunk)
            anchors.append(chunk)
        if count:
            self.work.journal.check_received(Step.ANCHORS, tally.facts)
        return np.concatenate(anchors)

    # -- parts of exchanges ------------------------------------------------------------------------

    def raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool = False
    ) -> Iterator[Elements]:
        """Yield each chunk raised to `exponent`, and report progress."""
        for raised in self.work.executor.raised(chunks, exponent, check=check):
            self.progress.advance(len(raised))
            yield raised

    def receive_count(self, step: Step, whole: int) -> int:
        """Receive the size of our part of a shuffled set; all parts together must have `whole`."""
        coming = receive_count(self.channel, step)
        announced = self.work.total(f"{step.label}: coming", coming)
        if announced != whole:
            raise wrong_count(step, announced, whole)
        return coming

    def received(self, step: Step, count: int, width: int | None = None) -> Iterator[Elements]:
        """Yield the chunks of a set, by default of elements, which are not validated."""
        return receive_chunks(self.channel, step, count, width or self.work.group.width)

    def send_sorted(self, step: Step, sorter: SetSorter) -> int:
        """Send what a sorter holds; return how many elements that were."""
        count = sorter.complete()
        send_header(self.channel, step, count)
        send_chunks(self.channel, step, self._in_chunks(sorter))
        return count

    def send_stored(self, step: Step, stored: StoredSet) -> None:
        """Send a stored set as it is."""
        send_header(self.channel, step, len(stored))
        send_chunks(self.channel, step, stored.chunks())

    def _tallied(self, chunks: Iterable[Elements], tally: Tally) -> Iterator[Elements]:
        for chunk in chunks:
            tally.add(chunk)
            yield chunk

    def _spooled(self, chunks: Iterable[Elements]) -> AbstractContextManager[Iterator[Elements]]:
        return spooled(chunks, self.work.journal.storage, self.work.group.width)

    def with_raised(
        self,
        step: Step,
        chunks: Iterable[Elements],
        exponent: Exponent,
        order: AscendingCheck | None = None,
    ) -> Iterator[tuple[Elements, Elements]]:
        """Yield each chunk received, after validation, with the same raised to `exponent`.

        With `order`, the elements must be sorted.
        """
        in_progress: deque[Elements] = deque()

        def remembered() -> Iterator[Elements]:
            for chunk in chunks:
                if order is not None:
                    require_shuffled(step, order, chunk)
                in_progress.append(chunk)
                yield chunk

        for raised in self.raised(remembered(), exponent, check=True):
            yield in_progress.popleft(), raised

    def _receive_into(
        self,
        sorter: SetSorter,
        count: int,
        exponent: Exponent,
        copy: TemporarySet | None = None,
    ) -> None:
        """Receive a shuffled set and add it to the sorter, raised; `copy` gets it as received."""
        out, tally = self.out, Tally()
        self.progress.expect(count)
        order = self.work.ascending_check()
        chunks = self.received(out, count)
        for chunk, raised in self.with_raised(out, chunks, exponent, order):
            tally.add(chunk)
            sorter.add(raised)
            if copy is not None:
                copy.append(chunk)
        self.work.journal.check_received(out, tally.facts)

    def _distinct(self, sorter: SetSorter) -> Iterator[Elements]:
        """Yield a sorted set in chunks, after checking that all elements are distinct."""
        distinct = AscendingCheck()
        for chunk in self._in_chunks(sorter):
            if not distinct.accepts(chunk):
                # Distinct encodings of one element differ by a point of small order.
                raise ProtocolViolation(f"step {self.out.label}: the peer's elements collide")
            yield chunk

    def _in_chunks(self, sorter: SetSorter) -> Iterator[Elements]:
        """Yield a sorted set, as many elements at a time as one message holds."""
        return in_chunks(sorter.blocks(), rows_per_chunk(self.work.group.width))
