"""When a party waits for its peer, for how long, and when it gives up; on a clock of the test."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import (
    FloristError,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
    TransportError,
)
from florist.common.core.release import RELEASE
from florist.common.session.reconnect import PAUSE, STABLE_AFTER, Outage, run_with_peer
from florist.common.session.run_directory import RunDirectory
from florist.common.session.session import Session, SessionTimeouts, make_hello
from florist.common.session.stage_state import StageState
from florist.common.settings.loader import load_config
from florist.common.transport.in_memory import linked_pair
from tests.support.clocks import FakeClock
from tests.support.parties import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from florist.common.core.roles import RoleName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Link

LOST = PeerLost("the connection was lost")
UNREACHABLE = TransportError("nothing listens")


def test_the_first_loss_starts_the_outage() -> None:
    clock = FakeClock()
    outage = Outage(100.0, clock)
    assert outage.connect_timeout(7.0) == 7.0
    assert outage.should_wait(LOST, lasted=3.0)
    assert outage.is_under_way
    clock.advance(40)
    assert outage.remaining == outage.connect_timeout(7.0) == 60.0


def test_later_losses_do_not_extend_the_outage() -> None:
    clock = FakeClock()
    outage = Outage(100.0, clock)
    for _ in range(4):
        assert outage.should_wait(LOST, lasted=3.0)
        clock.advance(25)
    assert not outage.should_wait(LOST, lasted=3.0)
    assert outage.connect_timeout(7.0) == 1.0


def test_a_stable_session_ends_the_outage() -> None:
    clock = FakeClock()
    outage = Outage(100.0, clock)
    assert outage.should_wait(LOST, lasted=3.0)
    clock.advance(90)
    assert outage.should_wait(LOST, lasted=STABLE_AFTER + 1)
    assert outage.remaining == 100.0


def test_attempts_to_connect_do_not_count_as_a_stable_session() -> None:
    clock = FakeClock()
    outage = Outage(100.0, clock)
    assert outage.should_wait(LOST, lasted=3.0)
    clock.advance(90)
    assert outage.should_wait(UNREACHABLE, lasted=STABLE_AFTER + 1)
    assert outage.remaining == 10.0


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (LOST, True),
        (PeerFailed("its operator stopped it", will_reconnect=True), True),
        (PeerFailed("its data cannot be used"), False),
        (UNREACHABLE, False),  # there was no peer yet: a configuration error
    ],
    ids=["lost", "stopped", "failed", "never there"],
)
def test_which_errors_are_worth_waiting_for(error: FloristError, waits: bool) -> None:  # noqa: FBT001
    assert Outage(100.0, FakeClock()).should_wait(error, lasted=3.0) is waits


def test_without_time_for_an_outage_there_is_no_waiting() -> None:
    assert not Outage(0.0, FakeClock()).should_wait(LOST, lasted=3.0)


class ScriptedRole:
    """A role whose connections are made by the test, one after the other."""

    name: RoleName = "active"

    def __init__(self, *connections: Callable[[], Link]) -> None:
        self._connections = iter(connections)
        #: The timeout of each attempt.
        self.timeouts: list[float] = []

    @contextmanager
    def connect(self, _config: PartyConfig, _plaintext: bool, timeout: float) -> Iterator[Link]:  # noqa: FBT001
        self.timeouts.append(timeout)
        link = next(self._connections)()
        try:
            yield link
        finally:
            link.close()


def peer(config: PartyConfig, *, leaves: bool = False) -> Callable[[], Link]:
    """A peer that performs the handshake and then says goodbye, or vanishes."""
    hello = make_hello("passive", RELEASE, config.agreement.canonical(), "align")

    def connect() -> Link:
        here, there = linked_pair(grace=0.0)

        def run() -> None:
            with suppress(FloristError), Session(there, hello, SessionTimeouts()):
                if leaves:
                    raise LOST

        Thread(target=run, daemon=True).start()
        return here

    return connect


def unreachable() -> Link:
    raise UNREACHABLE


@pytest.fixture
def config(tmp_path: Path) -> PartyConfig:
    workspace = Workspace.create(tmp_path)
    workspace.configure("active", {"timeouts.outage": 100.0, "timeouts.connect": 30.0})
    return load_config(workspace.config("active"))


@pytest.fixture
def stage(tmp_path: Path) -> StageState:
    return StageState(RunDirectory(tmp_path / "run"), "align")


def wait_for_the_peer(session: Session) -> None:
    """Work that needs the peer: it ends with the link."""
    with pytest.raises(PeerLost) as lost:
        session.channel("psu", timeout=20.0)
    raise lost.value


def test_a_lost_peer_is_awaited_and_the_work_is_run_again(
    config: PartyConfig, stage: StageState
) -> None:
    clock = FakeClock()
    role = ScriptedRole(peer(config, leaves=True), unreachable, peer(config))
    attempts: list[int] = []

    def work(session: Session) -> None:
        attempts.append(1)
        clock.advance(5)
        if len(attempts) == 1:
            wait_for_the_peer(session)

    run_with_peer(role, config, stage, work, plaintext=True, clock=clock)
    assert len(attempts) == 2
    assert clock.sleeps == [PAUSE, PAUSE]
    assert role.timeouts == [30.0, 100.0 - PAUSE, 100.0 - 2 * PAUSE]


def test_a_peer_that_stays_away_is_given_up(config: PartyConfig, stage: StageState) -> None:
    clock = FakeClock()

    def never() -> Link:
        clock.advance(40)
        raise UNREACHABLE

    role = ScriptedRole(peer(config, leaves=True), never, never, never)
    with pytest.raises(TransportError, match="nothing listens"):
        run_with_peer(role, config, stage, wait_for_the_peer, plaintext=True, clock=clock)
    assert len(role.timeouts) == 4


def test_an_error_of_the_work_is_not_repeated(config: PartyConfig, stage: StageState) -> None:
    clock = FakeClock()
    role = ScriptedRole(peer(config))

    def work(_: Session) -> None:
        raise ProtocolViolation("the peer cheats")

    with pytest.raises(ProtocolViolation, match="cheats"):
        run_with_peer(role, config, stage, work, plaintext=True, clock=clock)
    assert len(role.timeouts) == 1
