"""An exchange in which both parties send a message and both check the other's."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from florist.common.core.errors import FloristError

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.transport.channel import Channel
    from florist.common.transport.messages import Message

M = TypeVar("M", bound="Message")


def mutual_check(channel: Channel, ours: M, check: Callable[[M], None]) -> M:
    """Send `ours`, receive the peer's message and check it, while the peer does the same.

    If `check` fails for one party, it must fail for the other one too. Each party then reports the
    error itself: neither disconnects before the other one has received its message.

    Returns:
        The peer's message.
    """
    channel.send(ours)
    theirs = channel.receive(type(ours))
    channel.send(ours)  # again, to acknowledge the peer's message
    try:
        check(theirs)
    except FloristError:
        with suppress(FloristError):
            channel.receive(type(ours))
        raise
    channel.receive(type(ours))
    return theirs
