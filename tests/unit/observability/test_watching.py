"""What is watched behaves as if nobody watched."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest

from florist.active_party.role import ACTIVE
from florist.common.core.errors import PeerLost, TransportError
from florist.common.core.progress import NoProgress
from florist.common.observability.status import Status
from florist.common.stages.role import ForwardingRole
from florist.common.stages.watched_role import TimedChannel, WatchedProgress, WatchedRole
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Control, Goodbye
from tests.support.observability import ABOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link


#: Arguments, which are handed on as they are.
HOW: tuple[Any, ...] = ("config", True, 5.0)


class Connecting(ForwardingRole):
    """A role that connects by this function."""

    def __init__(self, inner: Role, connect: Callable[..., AbstractContextManager[Link]]) -> None:
        super().__init__(inner)
        self._connect = connect

    def connect(self, *how: object) -> AbstractContextManager[Link]:
        return self._connect(*how)


def test_waiting_for_a_message_is_timed_and_working_is_not() -> None:
    status = Status(ABOUT)
    ours, theirs = linked_pair()
    near, far = TimedChannel(ours.channel("c"), status.waits), theirs.channel("c")
    time.sleep(0.2)
    Timer(0.3, far.send, [Goodbye()]).start()
    assert near.receive(Control) == Goodbye()
    assert near.name == "c"
    assert 0.25 < status.waits.seconds < 5
    before = status.waits.seconds
    with pytest.raises(PeerLost):
        near.receive(Control, timeout=0.1)
    assert status.waits.seconds > before


def test_progress_goes_to_both() -> None:
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


def test_the_peer_is_awaited_then_up_then_gone() -> None:
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


def test_a_peer_that_never_comes_is_not_up() -> None:
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
