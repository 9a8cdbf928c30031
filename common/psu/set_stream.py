"""A set of elements on a channel: a header with the count, then chunks in order.

Where chunks are cut depends on the count alone. The receiver checks everything a peer could get
wrong: step, count, position, length, and that each element belongs to the group. A chunk that is
repeated, left out or out of place is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.errors import ProtocolViolation
from florist.common.messages import SetChunk, SetHeader
from florist.common.psu.sorted_streams import Ascent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.channel.channel import Channel
    from florist.common.groups.group import Elements, Group
    from florist.common.messages import Step

#: A chunk on the line: large enough for the wire, small enough to overlap it with computing.
CHUNK_BYTES = 256 * 1024


def rows_per_chunk(width: int) -> int:
    """How many elements of `width` bytes a chunk holds."""
    return max(1, CHUNK_BYTES // width)


def send_header(channel: Channel, step: Step, count: int) -> None:
    """Announce `count` elements."""
    channel.send(SetHeader(step, count))


def send_chunk(channel: Channel, step: Step, start: int, elements: Elements) -> None:
    """Send the elements that begin at position `start`."""
    channel.send(SetChunk(step, start, elements.tobytes()))


def receive_header(channel: Channel, step: Step, expected: int) -> None:
    """The peer must announce `expected` elements for `step`."""
    header = channel.receive(SetHeader)
    _check_step(header.step, step)
    if header.count != expected:
        raise ProtocolViolation(
            f"step {step.label}: the peer announces {header.count} elements instead of {expected}"
        )


def receive_chunk(channel: Channel, step: Step, start: int, count: int, group: Group) -> Elements:
    """The next chunk of `count` elements: it must begin at `start`; its elements are valid."""
    message = channel.receive(SetChunk)
    _check_step(message.step, step)
    if message.start != start:
        raise ProtocolViolation(
            f"step {step.label}: the peer's chunk begins at {message.start} instead of {start}: "
            "one was repeated, left out or out of order"
        )
    rows, remainder = divmod(len(message.elements), group.width)
    if rows == 0 or remainder:
        raise ProtocolViolation(
            f"step {step.label}: a chunk of {len(message.elements)} bytes holds no whole number of "
            f"elements of {group.width} bytes"
        )
    expected = min(rows_per_chunk(group.width), count - start)
    if rows != expected:
        raise ProtocolViolation(
            f"step {step.label}: the peer sends {rows} elements where {expected} are due"
        )
    elements = np.frombuffer(message.elements, dtype=np.uint8).reshape(rows, group.width)
    group.validate(elements)
    return elements


def receive_shuffled(channel: Channel, step: Step, count: int, group: Group) -> Iterator[Elements]:
    """The chunks of a shuffled set of `count` elements: sorted, and so shuffled and distinct."""
    start = 0
    ascent = Ascent()
    while start < count:
        chunk = receive_chunk(channel, step, start, count, group)
        if not ascent.goes_on_with(chunk):
            raise ProtocolViolation(
                f"step {step.label}: the peer's set is not shuffled by sorting, or not distinct"
            )
        yield chunk
        start += len(chunk)


def _check_step(got: Step, expected: Step) -> None:
    if got is not expected:
        raise ProtocolViolation(
            f"the peer sent step {got.label} where step {expected.label} was expected"
        )
