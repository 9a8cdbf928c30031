"""A link whose outgoing messages pass through a function: an easy way to be a bad peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from florist.common.channel.channel import Channel, Link, Traffic
    from florist.common.errors import FloristError
    from florist.common.messages import Control, Message

    M = TypeVar("M", bound=Message | Control)

#: Given a message about to be sent, the messages to send in its place.
Tamper = Callable[["Message"], Iterable["Message"]]


@dataclass
class TamperingChannel:
    inner: Channel
    tamper: Tamper

    @property
    def name(self) -> str:
        return self.inner.name

    def send(self, message: Message) -> None:
        for replacement in self.tamper(message):
            self.inner.send(replacement)

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        return self.inner.receive(expected, timeout)

    def close(self) -> None:
        self.inner.close()


@dataclass
class TamperingLink:
    inner: Link
    tamper: Tamper

    @property
    def traffic(self) -> Traffic:
        return self.inner.traffic

    @property
    def failure(self) -> FloristError | None:
        return self.inner.failure

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return TamperingChannel(self.inner.channel(name, timeout), self.tamper)

    def fail(self, error: FloristError) -> None:
        self.inner.fail(error)

    def close(self) -> None:
        self.inner.close()
