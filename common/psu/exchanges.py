"""The conversations of Algorithm 1. Each has an originator and an answerer; either party is both.

Two kinds cover all its steps:

*shuffled*  (3-4, 5-6, 8-9)  a whole set goes out shuffled, and comes back raised and shuffled;
*in order*  (11, 12)         elements go out in order, and come back raised, in the same order.

A shuffle is a sort of the whole set by encoded value: it keeps nothing of the order before it, and
the receiver can check it, together with distinctness, in one pass. Elements are raised chunk by
chunk as they arrive, but no chunk of a shuffled set is released before the whole set is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.errors import ProtocolViolation
from florist.common.groups.element_sets import is_strictly_increasing, sorted_set
from florist.common.messages import Step
from florist.common.psu.set_stream import (
    allocate,
    chunks,
    receive_chunk,
    receive_header,
    receive_shuffled,
    send_chunk,
    send_header,
    send_set,
)

if TYPE_CHECKING:
    from florist.common.channel.channel import Channel
    from florist.common.groups.group import Elements, Exponent, Group
    from florist.common.progress import StepProgress

#: Chunks of an in-order exchange that may be under way at once: both parties always have one to
#: work on, and neither waits for the other to read.
WINDOW = 4


@dataclass(frozen=True, slots=True)
class Exchange:
    """A conversation: its channel, its title for people, and the steps of its two ways."""

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
class Lane:
    """One exchange as a party runs it: where it talks, in which group, who hears of progress."""

    exchange: Exchange
    channel: Channel
    group: Group
    #: Counts exponentiations; `advance` raises whatever ends the run.
    progress: StepProgress

    def power(self, chunk: Elements, exponent: Exponent) -> Elements:
        """A chunk raised to `exponent`, and the progress told."""
        result = self.group.power(chunk, exponent)
        self.progress.advance(len(chunk))
        return result

    def originate_shuffled(self, elements: Elements, exponent: Exponent) -> Elements:
        """Raise, shuffle, send; return what comes back: raised and shuffled by the peer."""
        exchange = self.exchange
        self.progress.expect(len(elements))
        raised = np.empty_like(elements)
        for start, chunk in chunks(elements):
            raised[start : start + len(chunk)] = self.power(chunk, exponent)
        send_set(self.channel, exchange.out, sorted_set(raised))
        count = receive_header(self.channel, exchange.back, expected=len(elements))
        returned = raised  # its content is on the line; its room is free
        for start, chunk in receive_shuffled(self.channel, exchange.back, count, self.group):
            returned[start : start + len(chunk)] = chunk
        return returned

    def answer_shuffled(self, exponent: Exponent) -> Elements:
        """Receive a shuffled set; raise it, shuffle it, send it back; return what was sent."""
        exchange = self.exchange
        count = receive_header(self.channel, exchange.out)
        self.progress.expect(count)
        raised = allocate(count, exchange.out, self.group)
        for start, chunk in receive_shuffled(self.channel, exchange.out, count, self.group):
            raised[start : start + len(chunk)] = self.power(chunk, exponent)
        answer = sorted_set(raised)
        if not is_strictly_increasing(answer):
            # Distinct encodings of one element differ by a point of small order.
            raise ProtocolViolation(f"step {exchange.out.label}: the peer's elements collide")
        send_set(self.channel, exchange.back, answer)
        return answer

    def originate_in_order(self, elements: Elements, before: Exponent, after: Exponent) -> Elements:
        """Send each element raised to `before`, raise what comes back to `after`, in order."""
        exchange, count = self.exchange, len(elements)
        self.progress.expect(2 * count)
        send_header(self.channel, exchange.out, count)
        receive_header(self.channel, exchange.back, expected=count)
        result = np.empty_like(elements)
        received = 0

        def receive_one() -> None:
            nonlocal received
            chunk = receive_chunk(self.channel, exchange.back, received, count, self.group)
            result[received : received + len(chunk)] = self.power(chunk, after)
            received += len(chunk)

        for under_way, (start, chunk) in enumerate(chunks(elements)):
            if under_way >= WINDOW:
                receive_one()
            send_chunk(self.channel, exchange.out, start, self.power(chunk, before))
        while received < count:
            receive_one()
        return result

    def answer_in_order(self, exponent: Exponent) -> int:
        """Raise each chunk and send it back at once; return how many elements there were."""
        exchange = self.exchange
        count = receive_header(self.channel, exchange.out)
        self.progress.expect(count)
        send_header(self.channel, exchange.back, count)
        done = 0
        while done < count:
            chunk = receive_chunk(self.channel, exchange.out, done, count, self.group)
            send_chunk(self.channel, exchange.back, done, self.power(chunk, exponent))
            done += len(chunk)
        return count
