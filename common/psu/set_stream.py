"""A set of elements on a channel: a header with the count, then chunks in order.

The receiver checks everything a peer could get wrong: step, count, position, length, and that each
element belongs to the group. A chunk that is repeated, left out or out of place is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.errors import ProtocolViolation
from florist.common.groups.element_sets import is_strictly_increasing
from florist.common.messages import SetChunk, SetHeader

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


def chunks(elements: Elements) -> Iterator[tuple[int, Elements]]:
    """The set piece by piece, each with the position of its first element."""
    rows = rows_per_chunk(elements.shape[1])
    for start in range(0, len(elements), rows):
        yield start, elements[start : start + rows]


def send_header(channel: Channel, step: Step, count: int) -> None:
    """Announce `count` elements."""
    channel.send(SetHeader(step, count))


def send_chunk(channel: Channel, step: Step, start: int, elements: Elements) -> None:
    """Send the elements that begin at position `start`."""
    channel.send(SetChunk(step, start, elements.tobytes()))


def send_set(channel: Channel, step: Step, elements: Elements) -> None:
    """Send a whole set."""
    send_header(channel, step, len(elements))
    for start, chunk in chunks(elements):
        send_chunk(channel, step, start, chunk)


def receive_header(channel: Channel, step: Step, expected: int | None = None) -> int:
    """The count that the peer announces for `step`; must be `expected` where that is known."""
    header = channel.receive(SetHeader)
    _check_step(header.step, step)
    if expected is not None and header.count != expected:
        raise ProtocolViolation(
            f"step {step.label}: the peer announces {header.count} elements instead of {expected}"
        )
    return header.count


def receive_chunk(channel: Channel, step: Step, start: int, count: int, group: Group) -> Elements:
    """The next chunk: it must begin at `start` and stay within `count`; its elements are valid."""
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
    if start + rows > count:
        raise ProtocolViolation(f"step {step.label}: the peer sends more than it announced")
    elements = np.frombuffer(message.elements, dtype=np.uint8).reshape(rows, group.width)
    group.validate(elements)
    return elements


def receive_shuffled(
    channel: Channel, step: Step, count: int, group: Group
) -> Iterator[tuple[int, Elements]]:
    """The chunks of a shuffled set of `count` elements: sorted, and so shuffled and distinct."""
    start = 0
    last = np.empty((0, group.width), dtype=np.uint8)
    while start < count:
        chunk = receive_chunk(channel, step, start, count, group)
        if not is_strictly_increasing(np.concatenate([last, chunk])):
            raise ProtocolViolation(
                f"step {step.label}: the peer's set is not shuffled by sorting, or not distinct"
            )
        yield start, chunk
        start += len(chunk)
        last = chunk[-1:]


def allocate(count: int, step: Step, group: Group) -> Elements:
    """Room for an announced set. Pages are taken as chunks arrive, not on the peer's word."""
    try:
        return np.empty((count, group.width), dtype=np.uint8)
    except (MemoryError, ValueError, OverflowError):
        raise ProtocolViolation(
            f"step {step.label}: the peer announces {count} elements, more than fit in memory"
        ) from None


def _check_step(got: Step, expected: Step) -> None:
    if got is not expected:
        raise ProtocolViolation(
            f"the peer sent step {got.label} where step {expected.label} was expected"
        )
