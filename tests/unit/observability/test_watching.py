"""Observed progress, roles and channels behave as if they were not observed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from florist.active_party.role import ACTIVE
from florist.common.core.errors import ChannelEnded, TransportError
from florist.common.core.progress import NoProgress
from florist.common.observability.status import Status
from florist.common.stages.role import ForwardingRole
from florist.common.stages.watched_role import TimedChannel, WatchedProgress, WatchedRole
from florist.common.transport.forwarding import ForwardingChannel
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Control, Goodbye
from tests.support.clocks import FakeClock
from tests.support.observability import ABOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.stages.role import Role
    from florist.common.transport.channel import Channel, Link, M


#: Arguments that are passed on unchanged.
HOW: tuple[Any, ...] = ("config", True, 5.0)


class Connecting(ForwardingRole):
    """A role that connects by this function."""

    def __init__(self, inner: Role, connect: Callable[..., AbstractContextManager[Link]]) -> None:
        super().__init__(inner)
        self._connect = connect

    def connect(self, *how: object) -> AbstractContextManager[Link]:
        return self._connect(*how)


class SlowChannel(ForwardingChannel):
    """Takes three seconds for each message."""

    def __init__(self, inner: Channel, clock: FakeClock) -> None:
        super().__init__(inner)
        self._clock = clock

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        self._clock.advance(3)
        return super().receive(expected, timeout)


def test_waiting_for_a_message_is_timed_and_working_is_not() -> None:
    clock = FakeClock()
    status = Status(ABOUT, clock=clock)
    ours, theirs = linked_pair()
    channel = TimedChannel(SlowChannel(ours.channel("c"), clock), status.waits)
    theirs.channel("c").send(Goodbye())
    clock.advance(2)
    assert channel.receive(Control) == Goodbye()
    assert channel.name == "c"
    assert status.waits.seconds == 3
    theirs.close()
    with pytest.raises(ChannelEnded):
        channel.receive(Control)
    assert status.waits.seconds == 6


def test_progress_is_forwarded_and_recorded() -> None:
    status, seen = Status(ABOUT), []

    class Inner(NoProgress):
        def expect(self, total: int) -> None:
            seen.append(total)

        def advance(self, done: int) -> None:
            seen.append(done)

    next(iter(status.stages(["align"])))
    with WatchedProgress(Inner(), status).step("hashing") as step:
        step.expect(9)
        step.advance(4)
        (figures,) = status.snapshot().steps
    assert seen == [9, 4]
    assert (figures.title, figures.done, figures.total) == ("hashing", 4, 9)


def test_the_peer_is_awaited_then_up_then_idle() -> None:
    status = Status(ABOUT)
    seen: list[object] = []

    @contextmanager
    def connect(*how: object) -> Iterator[Link]:
        seen.append((how, status.snapshot().peer))
        yield linked_pair()[0]

    role = WatchedRole(Connecting(ACTIVE, connect), status)
    with role.connect(*HOW):
        seen.append(status.snapshot().peer)
    assert seen == [(HOW, "awaited"), "up"]
    assert status.snapshot().peer == "idle"


def test_a_peer_that_never_connects_is_not_up() -> None:
    status = Status(ABOUT)

    @contextmanager
    def connect(*how: object) -> Iterator[Link]:
        if how:
            raise TransportError("nobody")
        yield linked_pair()[0]

    role = WatchedRole(Connecting(ACTIVE, connect), status)
    with pytest.raises(TransportError), role.connect(*HOW):
        pass
    assert status.snapshot().peer == "idle"
