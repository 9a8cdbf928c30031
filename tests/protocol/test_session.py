"""Handshake, heartbeats and final messages of a session, over the in-memory link."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import (
    AgreementMismatch,
    ConfigurationError,
    FloristError,
    Interrupted,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
)
from florist.common.session.session import (
    NoStageToRun,
    PeerInEarlierStage,
    Session,
    SessionTimeouts,
    StageAlreadyComplete,
    make_hello,
)
from florist.common.settings.agreement import Agreement
from florist.common.transport.channel import CONTROL
from florist.common.transport.codec import encode
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import Abort, Goodbye, Heartbeat, Hello, SetHeader, Step
from tests.support.clocks import ManualClock
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.transport.channel import Link
    from florist.common.transport.in_memory import InMemoryLink

#: Seconds of real time for what takes none on the clock of the test.
PATIENCE = 20.0
TIMEOUTS = SessionTimeouts(silence=10.0, stall=60.0)
AGREED = Agreement().canonical()


def hello(role: str = "active", agreement: str = AGREED, stage: str = "align") -> Hello:
    return make_hello(role, "0", agreement, stage)


def outcome(act: Callable[[], None]) -> FloristError | None:
    try:
        act()
    except FloristError as error:
        return error
    return None


def meet(
    ours: Hello,
    theirs: Hello,
    we_do: Callable[[Session], None] = lambda _: None,
    they_do: Callable[[Session], None] = lambda _: None,
) -> tuple[FloristError | None, FloristError | None]:
    """Run both sides of a session; return how each ended."""
    left, right = linked_pair()

    def side(link: Link, greeting: Hello, do: Callable[[Session], None]) -> None:
        with Session(link, greeting, TIMEOUTS) as session:
            do(session)

    with ThreadPoolExecutor(2) as both:
        one = both.submit(outcome, lambda: side(left, ours, we_do))
        two = both.submit(outcome, lambda: side(right, theirs, they_do))
        return one.result(timeout=30), two.result(timeout=30)


@dataclass
class OpenPair:
    """Both sides of an open session, whose time only `run` moves."""

    clock: ManualClock
    links: tuple[InMemoryLink, InMemoryLink]
    sessions: tuple[Session, Session]

    def run(self, seconds: float) -> None:
        """Let the time pass until then, or until a side fails."""

        def ready(waiting: int) -> bool:
            """Each side's two threads wait, and no message is on its way."""
            left, right = (link.traffic for link in self.links)
            return waiting == 4 and (left.sent, right.sent) == (right.received, left.received)

        self.clock.run(seconds, ready, stop=lambda: any(self.failures))

    @property
    def failures(self) -> list[FloristError | None]:
        return [session.failure for session in self.sessions]


@contextmanager
def opened() -> Iterator[OpenPair]:
    clock = ManualClock()
    links = linked_pair(grace=0.0, clock=clock)
    greetings = (hello("active"), hello("passive"))
    sessions = [
        Session(link, greeting, TIMEOUTS, clock)
        for link, greeting in zip(links, greetings, strict=True)
    ]
    with ThreadPoolExecutor(2) as both:
        left, right = both.map(Session.__enter__, sessions)
        yield OpenPair(clock, links, (left, right))
        errors = list(both.map(lambda session: outcome(lambda: leave(session)), sessions))
    assert errors == [session.failure for session in sessions]


def leave(session: Session) -> None:
    session.__exit__(None, None, None)


def test_a_session_of_parties_that_agree_ends_normally() -> None:
    assert meet(hello("active"), hello("passive")) == (None, None)


def test_a_peer_that_disconnects_before_the_handshake_may_reconnect() -> None:
    """It was about to close when this party connected, which is not a protocol violation."""
    left, right = linked_pair()
    with ThreadPoolExecutor(1) as other:
        entering = other.submit(Session(left, hello("active"), SessionTimeouts()).__enter__)
        right.channel(CONTROL).receive(Hello, timeout=10)
        right.close()
        with pytest.raises(PeerLost, match="closed the connection before the handshake"):
            entering.result(timeout=10)


def test_a_difference_is_reported_on_both_sides_field_by_field() -> None:
    other = Agreement(group="modp2048", id_normalisation="none").canonical()
    for error in meet(hello("active"), hello("passive", other)):
        assert isinstance(error, AgreementMismatch)
        assert len(error.differences) == 2
        assert "group" in str(error)
        assert "id_normalisation" in str(error)


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        (hello("active"), "--role"),
        (hello("passive", stage="train"), "--stage"),
        (Hello(99, "passive", "9.9", AGREED, "align"), "protocol version"),
    ],
)
def test_other_differences_end_both_sessions(theirs: Hello, says: str) -> None:
    for error in meet(hello("active"), theirs):
        assert isinstance(error, ConfigurationError)
        assert says in str(error)


@pytest.mark.parametrize(
    ("ours", "theirs", "we_find", "they_find"),
    [
        (("train", False), ("train", False), None, None),
        (("train", True), ("train", False), None, None),  # done here, to be done there
        (("train", True), ("train", True), StageAlreadyComplete, StageAlreadyComplete),
        (("align", True), ("train", False), StageAlreadyComplete, PeerInEarlierStage),
        (("train", True), ("evaluate", True), StageAlreadyComplete, PeerInEarlierStage),
    ],
)
def test_stages_are_compared(
    ours: tuple[str, bool],
    theirs: tuple[str, bool],
    we_find: type[NoStageToRun] | None,
    they_find: type[NoStageToRun] | None,
) -> None:
    def enter(link: Link, role: str, stage: str, finished: bool) -> type[Exception] | None:  # noqa: FBT001
        try:
            with Session(link, make_hello(role, "0", AGREED, stage, finished=finished), TIMEOUTS):
                return None
        except NoStageToRun as found:
            return type(found)

    for one, two in (
        ((ours, we_find), (theirs, they_find)),
        ((theirs, they_find), (ours, we_find)),
    ):
        left, right = linked_pair()
        with ThreadPoolExecutor(2) as both:
            first = both.submit(enter, left, "active", *one[0])
            second = both.submit(enter, right, "passive", *two[0])
            assert (first.result(30), second.result(30)) == (one[1], two[1])


def test_the_peer_receives_the_reason_of_a_failure() -> None:
    def stumble(_: Session) -> None:
        raise ProtocolViolation("step 9: something is wrong")

    def wait(session: Session) -> None:
        session.channel("psu").receive(SetHeader)

    ours, theirs = meet(hello("active"), hello("passive"), stumble, wait)
    assert isinstance(ours, ProtocolViolation)
    assert isinstance(theirs, PeerFailed)
    assert "step 9: something is wrong" in str(theirs)


def test_the_peer_learns_that_an_operator_stopped_the_party() -> None:
    def stop(_: Session) -> None:
        raise Interrupted("stopped by SIGTERM")

    def wait(session: Session) -> None:
        session.channel("psu").receive(SetHeader)

    ours, theirs = meet(hello("active"), hello("passive"), stop, wait)
    assert isinstance(ours, Interrupted)
    assert isinstance(theirs, PeerFailed)
    assert "operator" in str(theirs)


def fail_with_the_link(session: Session) -> None:
    """Compute until the link fails."""
    wait_until(lambda: session.failure is not None, PATIENCE)
    assert session.failure is not None
    raise session.failure


def test_paths_and_ids_of_a_configuration_error_are_not_sent() -> None:
    def stumble(_: Session) -> None:
        raise ConfigurationError("/home/bank/people.csv: duplicate ID 'zelda'")

    _, theirs = meet(hello("active"), hello("passive"), stumble, fail_with_the_link)
    assert isinstance(theirs, PeerFailed)
    assert "zelda" not in str(theirs)
    assert "people" not in str(theirs)


def test_heartbeats_keep_a_quiet_session_alive() -> None:
    with opened() as pair:
        pair.run(5 * TIMEOUTS.silence)
        assert pair.failures == [None, None]


def test_the_first_to_finish_waits_for_the_other() -> None:
    may_finish = Event()

    def slow(_: Session) -> None:
        assert may_finish.wait(PATIENCE)

    left, right = linked_pair()

    def side(link: Link, greeting: Hello, do: Callable[[Session], None]) -> None:
        with Session(link, greeting, TIMEOUTS) as session:
            do(session)

    with ThreadPoolExecutor(2) as both:
        quick = both.submit(side, left, hello("active"), lambda _: None)
        late = both.submit(side, right, hello("passive"), slow)
        farewell = len(encode(hello("active"))) + len(encode(Goodbye()))
        wait_until(lambda: right.traffic.received >= farewell, PATIENCE)
        assert not quick.done()
        may_finish.set()
        quick.result(PATIENCE)
        late.result(PATIENCE)


def test_no_progress_on_either_side_is_a_stall() -> None:
    with opened() as pair:
        pair.run(TIMEOUTS.stall - TIMEOUTS.silence)
        assert pair.failures == [None, None]
        pair.run(2 * TIMEOUTS.silence)
        wait_until(lambda: all(pair.failures), PATIENCE)
        assert all(isinstance(error, PeerLost) for error in pair.failures)
        assert any("neither party made progress for 60 s" in str(e) for e in pair.failures)


def test_waiting_for_a_busy_peer_is_not_a_stall() -> None:
    with opened() as pair:
        for _ in range(5):
            pair.run(TIMEOUTS.stall / 2)
            pair.sessions[1].count_work(1)
        assert pair.failures == [None, None]


def test_a_silent_peer_is_lost() -> None:
    clock = ManualClock()
    left, right = linked_pair(clock=clock)
    right.channel(CONTROL).send(hello("passive"))
    session = Session(left, hello("active"), TIMEOUTS, clock).__enter__()
    clock.run(TIMEOUTS.silence - 1, lambda waiting: waiting == 2, lambda: False)
    assert session.failure is None
    clock.run(1, lambda waiting: waiting == 2, lambda: False)
    with pytest.raises(PeerLost, match="nothing on channel control for 10 s"):
        session.channel("psu").receive(SetHeader)
    session.close()


def test_a_peer_that_vanishes_after_its_goodbye_is_lost() -> None:
    """This party may still work, and its own goodbye must not wait for ever."""
    clock = ManualClock()
    left, right = linked_pair(clock=clock)
    control = right.channel(CONTROL)
    control.send(hello("passive"))
    control.send(Goodbye())
    session = Session(left, hello("active"), TIMEOUTS, clock).__enter__()
    clock.run(2 * TIMEOUTS.silence, lambda waiting: waiting == 2, lambda: bool(session.failure))
    wait_until(lambda: isinstance(session.failure, PeerLost), PATIENCE)
    session.__exit__(None, None, None)  # both are done: the result counts


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Heartbeat(0), ProtocolViolation),
        (Goodbye(), ProtocolViolation),
        (Abort("disk full"), PeerFailed),
        (SetHeader(Step.SECOND_ROUND, 1), ProtocolViolation),
    ],
)
def test_a_first_message_that_is_not_a_hello_is_refused(
    message: Hello, kind: type[FloristError]
) -> None:
    left, right = linked_pair()
    right.channel(CONTROL).send(message)
    with pytest.raises(kind), Session(left, hello("active"), TIMEOUTS):
        pass


def test_a_second_hello_is_refused() -> None:
    left, right = linked_pair()
    control = right.channel(CONTROL)
    control.send(hello("passive"))
    control.send(hello("passive"))
    with pytest.raises(ProtocolViolation), Session(left, hello("active"), TIMEOUTS) as session:
        session.channel("psu").receive(SetHeader)


def test_a_reason_from_the_peer_cannot_write_to_the_terminal() -> None:
    left, right = linked_pair()
    right.channel(CONTROL).send(Abort("\x1b[2J\nall is well" + "x" * 10_000))
    with pytest.raises(PeerFailed) as caught, Session(left, hello("active"), TIMEOUTS):
        pass
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2100
