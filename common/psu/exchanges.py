"""The exchanges of Algorithm 1. Each has an originator and an answerer; a party is either in turn.

Two kinds cover all its steps:

*shuffled*  (3-4, 5-6, 8-9)  a whole set is sent shuffled, and returned raised and shuffled;
*in order*  (11, 12)         elements are sent in order, and returned raised, in the same order.

A shuffle is a sort of the whole set by encoded value: it keeps nothing of the previous order, and
the receiver can check it, together with distinctness, in one pass. Elements are raised chunk by
chunk as they arrive, but no chunk of a shuffled set is sent before the whole set has arrived.

The rounds need each other's results, and while one party raises the union, the other waits for it.
So shuffled exchanges have priority wherever something is computed, and exchanges in order use the
time that these leave idle.

What the peer sends is recorded before any answer to it is sent: in a later attempt at the same
union, under the same secrets, nothing else is answered.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import ProtocolViolation
from florist.common.core.prefetch import prefetched
from florist.common.core.priority_pool import high_priority
from florist.common.psu.set_stream import (
    receive_chunks,
    receive_count,
    receive_header,
    require_shuffled,
    rows_per_chunk,
    send_chunk,
    send_header,
    wrong_count,
)
from florist.common.psu.sorted_streams import AscendingCheck, in_chunks, in_step
from florist.common.psu.stored_sets import SetFacts, StoredSet, Tally, temporary_set
from florist.common.storage.element_sets import intersection_size
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.core.progress import StepProgress
    from florist.common.groups.group import Exponent
    from florist.common.psu.planted_pairs import PlantedPairs
    from florist.common.psu.shared_sorting import SetSorter
    from florist.common.psu.stored_sets import ReadableSet, TemporarySet
    from florist.common.psu.union_work import UnionWork
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Channel

#: The least number of chunks of an in-order exchange in progress at once, so that both parties
#: always have some to work on.
WINDOW = 32


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange: its channel, its title in progress reports, and its steps out and back."""

    channel: str
    title: str
    out: Step
    back: Step


ACTIVE_FIRST_ROUND = Exchange(
    "psu.first-round.active",
    "steps 3-4: the active party's IDs, first round",
    Step.ACTIVE_FIRST_ROUND,
    Step.ACTIVE_FIRST_ROUND_BACK,
)
PASSIVE_FIRST_ROUND = Exchange(
    "psu.first-round.passive",
    "steps 5-6: the passive party's IDs, first round",
    Step.PASSIVE_FIRST_ROUND,
    Step.PASSIVE_FIRST_ROUND_BACK,
)
SECOND_ROUND = Exchange(
    "psu.second-round",
    "steps 7-10: the union, second round",
    Step.SECOND_ROUND,
    Step.SECOND_ROUND_BACK,
)
ACTIVE_HASHING = Exchange(
    "psu.hashing.active",
    "step 11: the active party's IDs to UIDs",
    Step.ACTIVE_HASHING,
    Step.ACTIVE_HASHING_BACK,
)
PASSIVE_HASHING = Exchange(
    "psu.hashing.passive",
    "step 12: the passive party's IDs to UIDs",
    Step.PASSIVE_HASHING,
    Step.PASSIVE_HASHING_BACK,
)


@dataclass(frozen=True, slots=True)
class ExchangeRun:
    """One exchange as a party runs it."""

    exchange: Exchange
    channel: Channel
    work: UnionWork
    #: Counts exponentiations; `advance` raises the error of a link that has failed.
    progress: StepProgress

    @high_priority()
    def originate_shuffled(
        self, chunks: Iterable[Elements], count: int, exponent: Exponent, added: int = 0
    ) -> StoredSet:
        """Raise, shuffle and send the set; store what comes back, raised and shuffled by the peer.

        `chunks` has `count` elements. The peer adds `added` elements of its own to what it returns.
        With several partitions, they shuffle their sets together.
        """
        out, back = self.exchange.out, self.exchange.back
        whole = self.work.total(f"{out.label}: elements", count)
        self.progress.expect(count)
        with self.work.sorting(out.label, count) as sorter:
            for raised in self._raised(chunks, exponent):
                sorter.add(raised)
            send_header(self.channel, out, sorter.complete())
            for start, chunk in self._numbered(sorter):
                send_chunk(self.channel, out, start, chunk)
        coming = self._receive_count(back, whole + added)
        order = self.work.ascending_check()
        with self.work.storing(out) as writer:
            for chunk in self.work.executor.checked(self._received(back, coming)):
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
        out, back = self.exchange.out, self.exchange.back
        coming = self._receive_count(out, whole)
        extra = 0 if added is None else len(added)
        with self.work.sorting(out.label, coming + extra) as sorter:
            self._receive_into(sorter, coming, exponent)
            if added is not None:
                sorter.add(added)
            send_header(self.channel, back, sorter.complete())
            with self.work.storing(out) as writer:
                for start, chunk in self._distinct(sorter):
                    writer.append(chunk)
                    send_chunk(self.channel, back, start, chunk)
        return self.work.finish(out, writer.tally.facts)

    @high_priority()
    def answer_planted(self, whole: int, exponent: Exponent, pairs: PlantedPairs) -> StoredSet:
        """Answer as `answer_shuffled` does, after checking that all planted pairs are intact.

        Raising the first element of a pair to `exponent` gives the second. Nothing is sent before
        the check, so that a peer that fails it learns nothing.
        """
        if not pairs.count:
            return self.answer_shuffled(whole, exponent)
        out, back = self.exchange.out, self.exchange.back
        coming = self._receive_count(out, whole)
        intact = 0
        with (
            temporary_set(self.work.journal.storage, self.work.group.width) as received,
            self.work.sorting(out.label, coming) as sorter,
        ):
            self._receive_into(sorter, coming, exponent, received)
            count = sorter.complete()
            raised = (chunk for _, chunk in self._distinct(sorter))
            with self.work.storing(out) as writer:
                for before, after in in_step(received.chunks(), raised, self.work.group.width):
                    if len(after):
                        writer.append(after)
                        intact += intersection_size(before, after) if len(before) else 0
        pairs.check(self.work.total("intact pairs", intact))
        answer = self.work.stored(out, writer.tally.facts)
        send_header(self.channel, back, count)
        start = 0
        for chunk in answer.chunks():
            send_chunk(self.channel, back, start, chunk)
            start += len(chunk)
        return self.work.finish(out, answer.facts)

    def originate_in_order(
        self, elements: ReadableSet, before: Exponent, after: Exponent
    ) -> StoredSet:
        """Send each element raised to `before`; store what comes back, raised to `after`."""
        out, back, count = self.exchange.out, self.exchange.back, len(elements)
        self.progress.expect(2 * count)
        send_header(self.channel, out, count)
        receive_header(self.channel, back, count)
        # The peer has as many chunks as we can work on, and so have we. Everything in progress is
        # read as it arrives: the peer never waits for us to read, and so reads what we send.
        window = max(WINDOW, 2 * self.work.executor.max_in_flight)
        answers = prefetched(self._received(back, count), window)
        with closing(answers), self.work.storing(out) as writer:
            returned = self._raised(answers, after, check=True)
            sent = 0
            for number, chunk in enumerate(self._raised(elements.chunks(), before)):
                if number >= window:
                    writer.append(next(returned))
                send_chunk(self.channel, out, sent, chunk)
                sent += len(chunk)
            for chunk in returned:
                writer.append(chunk)
        return self.work.finish(out, writer.tally.facts)

    def answer_in_order(self, count: int, exponent: Exponent) -> None:
        """Raise each chunk of a set of `count` elements and send it back at once."""
        out, back, journal = self.exchange.out, self.exchange.back, self.work.journal
        receive_header(self.channel, out, count)
        self.progress.expect(count)
        send_header(self.channel, back, count)
        done = 0
        pairs = self._received_and_raised(out, count, exponent)
        for number, (chunk, raised) in enumerate(pairs):
            journal.check_chunk(out, number, chunk)
            send_chunk(self.channel, back, done, raised)
            done += len(chunk)
        journal.finish(out, SetFacts(count, b""))

    def _raised(
        self, chunks: Iterable[Elements], exponent: Exponent, *, check: bool = False
    ) -> Iterator[Elements]:
        """Yield each chunk raised to `exponent`, and report progress."""
        for raised in self.work.executor.raised(chunks, exponent, check=check):
            self.progress.advance(len(raised))
            yield raised

    def _receive_count(self, step: Step, whole: int) -> int:
        """Receive the size of our part of a shuffled set; all parts together must have `whole`."""
        coming = receive_count(self.channel, step)
        announced = self.work.total(f"{step.label}: coming", coming)
        if announced != whole:
            raise wrong_count(step, announced, whole)
        return coming

    def _received(self, step: Step, count: int) -> Iterator[Elements]:
        return receive_chunks(self.channel, step, count, self.work.group.width)

    def _received_and_raised(
        self, step: Step, count: int, exponent: Exponent
    ) -> Iterator[tuple[Elements, Elements]]:
        """Yield each chunk received, after validation, with the same raised to `exponent`."""
        in_progress: deque[Elements] = deque()

        def remembered() -> Iterator[Elements]:
            for chunk in self._received(step, count):
                in_progress.append(chunk)
                yield chunk

        for raised in self._raised(remembered(), exponent, check=True):
            yield in_progress.popleft(), raised

    def _receive_into(
        self,
        sorter: SetSorter,
        count: int,
        exponent: Exponent,
        copy: TemporarySet | None = None,
    ) -> None:
        """Receive a shuffled set and add it to the sorter, raised; `copy` gets it as received."""
        out, order, tally = self.exchange.out, self.work.ascending_check(), Tally()
        self.progress.expect(count)
        for chunk, raised in self._received_and_raised(out, count, exponent):
            require_shuffled(out, order, chunk)
            tally.add(chunk)
            sorter.add(raised)
            if copy is not None:
                copy.append(chunk)
        self.work.journal.check_received(out, tally.facts)

    def _distinct(self, sorter: SetSorter) -> Iterator[tuple[int, Elements]]:
        """Yield what `_numbered` yields, after checking that all elements are distinct."""
        distinct = AscendingCheck()
        for start, chunk in self._numbered(sorter):
            if not distinct.accepts(chunk):
                # Distinct encodings of one element differ by a point of small order.
                step = self.exchange.out.label
                raise ProtocolViolation(f"step {step}: the peer's elements collide")
            yield start, chunk

    def _numbered(self, sorter: SetSorter) -> Iterator[tuple[int, Elements]]:
        """Yield the sorted set in chunks, each with the index of its first element."""
        start = 0
        for chunk in in_chunks(sorter.blocks(), rows_per_chunk(self.work.group.width)):
            yield start, chunk
            start += len(chunk)
