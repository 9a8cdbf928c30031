"""A set of elements on a channel: a header with the count, then chunks in order.

Where chunks are cut depends on the count alone. The receiver checks everything a peer could get
wrong: step, count, position, length. A chunk that is repeated, left out or out of place is refused.
That each element belongs to the group is for the executor to check, before anything comes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.transport.messages import SetChunk, SetHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.psu.sorted_streams import AscendingCheck
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Channel
    from florist.common.transport.messages import Step

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
    if (announced := receive_count(channel, step)) != expected:
        raise wrong_count(step, announced, expected)


def receive_count(channel: Channel, step: Step) -> int:
    """How many elements the peer announces for `step`."""
    header = channel.receive(SetHeader)
    _check_step(header.step, step)
    return header.count


def wrong_count(step: Step, announced: int, expected: int) -> ProtocolViolation:
    """For the raising."""
    return ProtocolViolation(
        f"step {step.label}: the peer announces {announced} elements instead of {expected}"
    )


def receive_chunks(channel: Channel, step: Step, count: int, width: int) -> Iterator[Elements]:
    """The chunks of a set of `count` elements of `width` bytes, which are not looked at."""
    start = 0
    while start < count:
        chunk = _receive_chunk(channel, step, start, count, width)
        yield chunk
        start += len(chunk)


def require_shuffled(step: Step, ascent: AscendingCheck, chunk: Elements) -> None:
    """A shuffled set is sorted, and so shuffled and distinct: this chunk, after those before."""
    if not ascent.accepts(chunk):
        raise ProtocolViolation(
            f"step {step.label}: the peer's set is not shuffled by sorting, or not distinct"
        )


def _receive_chunk(channel: Channel, step: Step, start: int, count: int, width: int) -> Elements:
    message = channel.receive(SetChunk)
    _check_step(message.step, step)
    if message.start != start:
        raise ProtocolViolation(
            f"step {step.label}: the peer's chunk begins at {message.start} instead of {start}: "
            "one was repeated, left out or out of order"
        )
    rows, remainder = divmod(len(message.elements), width)
    if rows == 0 or remainder:
        raise ProtocolViolation(
            f"step {step.label}: a chunk of {len(message.elements)} bytes holds no whole number of "
            f"elements of {width} bytes"
        )
    expected = min(rows_per_chunk(width), count - start)
    if rows != expected:
        raise ProtocolViolation(
            f"step {step.label}: the peer sends {rows} elements where {expected} are due"
        )
    return np.frombuffer(message.elements, dtype=np.uint8).reshape(rows, width)


def _check_step(got: Step, expected: Step) -> None:
    if got is not expected:
        raise ProtocolViolation(
            f"the peer sent step {got.label} where step {expected.label} was expected"
        )
