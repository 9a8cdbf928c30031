"""A channel whose messages somebody looks at, without keeping or changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.transport.forwarding import ForwardingChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.transport.channel import Channel, M
    from florist.common.transport.messages import Control, Message


class ObservedChannel(ForwardingChannel):
    """Another channel; `observe` is called with each message before it is sent, or handed on."""

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
