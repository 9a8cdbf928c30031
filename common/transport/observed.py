"""A channel that reports its messages to an observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.transport.forwarding import ForwardingChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.transport.channel import Channel, M
    from florist.common.transport.messages import Control, Message


class ObservedChannel(ForwardingChannel):
    """Wraps a channel; calls `observe` with each message before it is sent or returned."""

    def __init__(self, inner: Channel, observe: Callable[[Message | Control], None]) -> None:
        super().__init__(inner)
        self._observe = observe

    def send(self, message: Message) -> None:
        self._observe(message)
        self._inner.send(message)

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        message = self._inner.receive(expected, timeout)
        self._observe(message)
        return message
