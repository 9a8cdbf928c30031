"""A set of elements on a channel: a header with the count, then chunks in order.

The sizes of the chunks depend on the count alone. The receiver checks everything a peer could get
wrong: step, count, position, length. It refuses a chunk that is repeated, missing or out of order.
The executor checks that each element belongs to the group, before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.transport.messages import SetChunk, SetHeader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from florist.common.psu.sorted_streams import AscendingCheck
    from florist.common.storage.elements import Elements
    from florist.common.transport.channel import Channel
    from florist.common.transport.messages import Step

#: Bytes of a chunk: large enough to be sent efficiently, small enough to overlap with computing.
CHUNK_BYTES = 256 * 1024


def rows_per_chunk(width: int) -> int:
    """Return how many elements of `width` bytes a chunk holds."""
    return max(1, CHUNK_BYTES // width)


def send_header(channel: Channel, step: Step, count: int) -> None:
    """Announce `count` elements."""
    channel.send(SetHeader(step, count))


def send_chunk(channel: Channel, step: Step, start: int, elements: Elements) -> None:
    """Send the elements from index `start` on."""
    channel.send(SetChunk(step, start, elements.tobytes()))


def send_chunks(channel: Channel, step: Step, chunks: Iterable[Elements]) -> None:
    """Send all elements of a set, chunk by chunk."""
    start = 0
    for chunk in chunks:
        send_chunk(channel, step, start, chunk)
        start += len(chunk)


def receive_header(channel: Channel, step: Step, expected: int) -> None:
    """Receive the peer's header; raise ProtocolViolation unless it announces `expected`."""
    if (announced := receive_count(channel, step)) != expected:
        raise wrong_count(step, announced, expected)


def receive_count(channel: Channel, step: Step) -> int:
    """Return how many elements the peer announces for `step`."""
    header = channel.receive(SetHeader)
    _check_step(header.step, step)
    return header.count


def wrong_count(step: Step, announced: int, expected: int) -> ProtocolViolation:
    """Return the error for a set of the wrong size."""
    return ProtocolViolation(
        f"step {step.label}: the peer announces {announced} elements instead of {expected}"
    )


def receive_chunks(channel: Channel, step: Step, count: int, width: int) -> Iterator[Elements]:
    """Yield the chunks of a set of `count` elements of `width` bytes, which are not validated."""
    start = 0
    while start < count:
        chunk = _receive_chunk(channel, step, start, count, width)
        yield chunk
        start += len(chunk)


def require_shuffled(step: Step, order: AscendingCheck, chunk: Elements) -> None:
    """Raise ProtocolViolation unless a shuffled set is sorted and distinct up to this chunk."""
    if not order.accepts(chunk):
        raise ProtocolViolation(
            f"step {step.label}: the peer's set is not shuffled by sorting, or not distinct"
        )


def _receive_chunk(channel: Channel, step: Step, start: int, count: int, width: int) -> Elements:
    message = channel.receive(SetChunk)
    _check_step(message.step, step)
    if message.start != start:
        raise ProtocolViolation(
            f"step {step.label}: the peer's chunk starts at {message.start} instead of {start}: "
            "one was repeated, left out or out of order"
        )
    rows, remainder = divmod(len(message.elements), width)
    if rows == 0 or remainder:
        raise ProtocolViolation(
            f"step {step.label}: a chunk of {len(message.elements)} bytes is not a whole number of "
            f"elements of {width} bytes"
        )
    expected = min(rows_per_chunk(width), count - start)
    if rows != expected:
        raise ProtocolViolation(
            f"step {step.label}: the peer sent {rows} elements instead of {expected}"
        )
    return np.frombuffer(message.elements, dtype=np.uint8).reshape(rows, width)


def _check_step(got: Step, expected: Step) -> None:
    if got is not expected:
        raise ProtocolViolation(
            f"the peer sent step {got.label} where step {expected.label} was expected"
        )
