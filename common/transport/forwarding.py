"""Wrappers of channels and links that forward all calls; subclasses override what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from florist.common.core.errors import FloristError
    from florist.common.transport.channel import Channel, Link, M, Traffic
    from florist.common.transport.messages import Message


class ForwardingChannel:
    """Forwards all calls to another channel."""

    def __init__(self, inner: Channel) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    def send(self, message: Message) -> None:
        self._inner.send(message)

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        return self._inner.receive(expected, timeout)

    def close(self) -> None:
        self._inner.close()


class ForwardingLink:
    """Forwards all calls to another link."""

    def __init__(self, inner: Link) -> None:
        self._inner = inner

    @property
    def traffic(self) -> Traffic:
        return self._inner.traffic

    @property
    def failure(self) -> FloristError | None:
        return self._inner.failure

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return self._inner.channel(name, timeout)

    def fail(self, error: FloristError) -> None:
        self._inner.fail(error)

    def close(self) -> None:
        self._inner.close()
