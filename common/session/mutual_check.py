"""Both say something, both check what they hear, and both see what is wrong."""

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
    """Send `ours`, receive the peer's, and check it; the peer does the same.

    Where `check` fails here it is to fail there too. Each then reports it by itself: neither is
    gone before the other has heard what it had to say.
    """
    channel.send(ours)
    theirs = channel.receive(type(ours))
    channel.send(ours)  # once more, as a sign that theirs was heard
    try:
        check(theirs)
    except FloristError:
        with suppress(FloristError):
            channel.receive(type(ours))
        raise
    channel.receive(type(ours))
    return theirs
