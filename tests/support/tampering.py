"""A link whose outgoing messages pass through a function: an easy way to be a bad peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from florist.common.transport.forwarding import ForwardingChannel, ForwardingLink

if TYPE_CHECKING:
    from florist.common.transport.channel import Channel, Link
    from florist.common.transport.messages import Message

#: Given a message about to be sent, the messages to send in its place.
Tamper = Callable[["Message"], Iterable["Message"]]


class TamperingChannel(ForwardingChannel):
    def __init__(self, inner: Channel, tamper: Tamper) -> None:
        super().__init__(inner)
        self._tamper = tamper

    def send(self, message: Message) -> None:
        for replacement in self._tamper(message):
            super().send(replacement)


class TamperingLink(ForwardingLink):
    def __init__(self, inner: Link, tamper: Tamper) -> None:
        super().__init__(inner)
        self._tamper = tamper

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return TamperingChannel(super().channel(name, timeout), self._tamper)
