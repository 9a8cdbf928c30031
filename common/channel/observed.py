"""A channel whose messages somebody looks at, without keeping or changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.channel.channel import Channel, M
    from florist.common.messages import Control, Message


class ObservedChannel:
    """Another channel; `observe` is called with each message before it is sent, or handed on."""

    def __init__(self, inner: Channel, observe: Callable[[Message | Control], None]) -> None:
        self._inner = inner
        self._observe = observe

    @property
    def name(self) -> str:
        return self._inner.name

    def send(self, message: Message) -> None:
        self._observe(message)
        self._inner.send(message)

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        message = self._inner.receive(expected, timeout)
        self._observe(message)
        return message

    def close(self) -> None:
        self._inner.close()
