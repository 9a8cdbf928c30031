"""A session: a link with a handshake, heartbeats and a final message that says why it ends.

Protocol code uses a session as a link. Underneath, the control channel carries the handshake, then
a heartbeat every few seconds from a separate thread, then one final message: `Goodbye`, or `Abort`
with the reason. The session ends when the peer is silent, or when neither party makes progress.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import (
    AgreementMismatch,
    ChannelEnded,
    ConfigurationError,
    FloristError,
    PeerCannotStart,
    PeerFailed,
    PeerLost,
    ProtocolViolation,
    TransportError,
    as_florist_error,
)
from florist.common.core.text import printable
from florist.common.session.stage_state import STAGES
from florist.common.settings.agreement_differences import differences
from florist.common.transport.channel import CONTROL
from florist.common.transport.messages import (
    PROTOCOL_VERSION,
    Abort,
    Control,
    Goodbye,
    Heartbeat,
    Hello,
)
from florist.common.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from types import TracebackType

    from florist.common.core.clock import Clock
    from florist.common.transport.channel import Channel, Link, Traffic

log = logging.getLogger("florist.session")

#: The stage of a party that only checks the connection and the agreement.
PREFLIGHT = "preflight"

#: Seconds without progress after which the log says so, and again after each as many.
REPORT_STALL = 60.0

#: The maximum length of a reason from the peer, in characters.
REASON_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """How long a session waits before it gives up, in seconds."""

    #: Maximum time without any data from the peer.
    silence: float = 10.0
    #: Maximum time in which both parties are alive but neither makes progress.
    stall: float = 1800.0


class NoStageToRun(Exception):  # noqa: N818 - not an error
    """The handshake succeeded, but the two parties do not run a stage together now."""


class PeerRunsPreflight(NoStageToRun):
    """The peer ran `florist preflight` and has disconnected."""


class StageAlreadyComplete(NoStageToRun):
    """Both parties have their results of this stage."""


class PeerInEarlierStage(NoStageToRun):
    """The peer has just learnt that an earlier stage is complete; it reconnects for this one."""


class Session:
    """A link after a successful handshake.

    Use it as a context manager: on exit it sends `Goodbye` or, after an error, `Abort`.
    """

    def __init__(
        self, link: Link, hello: Hello, timeouts: SessionTimeouts, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._link = link
        self._hello = hello
        self._timeouts = timeouts
        self._clock = clock
        self._control: Channel = link.channel(CONTROL, timeout=timeouts.silence)
        self._work = _Counter()
        self._peer_done = Event()
        #: Set once it is known how the session ends at the peer: by a goodbye or a failure.
        self._peer_ended = Event()
        self._closed = Event()
        self._farewell_lock = Lock()
        self._farewell_sent = False
        self._last_state = (-1, -1)
        self._last_progress = clock.now()
        self._stalls = RateLimitedLog(lambda text: log.info("%s", text), REPORT_STALL, clock)

    # -- the interface for protocol code -----------------------------------------------------------

    @property
    def traffic(self) -> Traffic:
        return self._link.traffic

    @property
    def failure(self) -> FloristError | None:
        return self._link.failure

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return self._link.channel(name, timeout)

    def fail(self, error: FloristError) -> None:
        """Send the reason to the peer, then fail the link. Only the first error counts."""
        if self._link.failure is None and not isinstance(error, PeerFailed | TransportError):
            self._send_farewell(Abort(error.for_peer[:REASON_LIMIT], error.will_reconnect))
        self._link.fail(error)

    def close(self) -> None:
        self._closed.set()
        self._link.close()

    def count_work(self, amount: int) -> None:
        """Count this party's progress, which tells the peer that this party is not stalled."""
        self._work.add(amount)

    # -- the life of a session ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._handshake()
        except NoStageToRun:
            self._send_farewell(Goodbye())
            self.close()
            raise
        except BaseException as error:
            self._abort(error)
            raise
        for target in (self._send_heartbeats, self._listen):
            Thread(target=target, name=f"session-{target.__name__}", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._abort(error)
            return
        try:
            self._send_farewell(Goodbye())
            self._wait_for_goodbye()
        finally:
            self.close()

    def _abort(self, error: BaseException) -> None:
        self.fail(as_florist_error(error))
        self.close()

    def _handshake(self) -> None:
        self._control.send(self._hello)
        try:
            message = self._control.receive(Control, timeout=self._timeouts.silence)
        except ChannelEnded:
            raise PeerLost("the peer closed the connection before the handshake") from None
        match message:
            case Hello() as theirs:
                _compare(self._hello, theirs)
            case Abort() as abort:  # in place of a Hello: see `start_notice`
                raise PeerCannotStart(
                    f"the peer cannot start: {_shown(abort.reason) or 'no reason given'}"
                )
            case _:
                raise ProtocolViolation("the peer's first message is not a Hello")

    def _send_heartbeats(self) -> None:
        while not self._clock.wait(self._closed, self._timeouts.silence / 4):
            try:
                self._control.send(Heartbeat(self._work.value))
            except FloristError:
                return  # the link has failed; all callers of the session get the error

    def _listen(self) -> None:
        """Read the peer's heartbeats until the link ends, also while only this party still works.

        A peer that has said goodbye can vanish like any other, and then nothing can be sent to it.
        """
        try:
            while self._handle(self._next_message()):
                pass
        except ChannelEnded as error:
            if not self._peer_done.is_set():
                self.fail(error)
        except ProtocolViolation as error:
            self.fail(error)
        except FloristError as error:
            self._link.fail(error)  # the peer is gone or silent
        finally:
            self._peer_ended.set()

    def _next_message(self) -> Control:
        """The next message on `control`; bulk data on other channels may delay a heartbeat."""
        while True:
            received = self._link.traffic.received
            try:
                return self._control.receive(Control, timeout=self._timeouts.silence)
            except PeerLost:
                if self._link.failure is not None or self._link.traffic.received == received:
                    raise

    def _handle(self, message: Control) -> bool:
        """Handle a message of the peer; False if nothing more may follow."""
        match message:
            case Heartbeat(work):
                self._check_stall(work)
                return True
            case Goodbye():
                self._peer_done.set()
                self._peer_ended.set()
                return True  # its heartbeats go on until both have said goodbye
            case Abort() as abort:
                self._link.fail(_peer_failed(abort))
            case _:
                self.fail(ProtocolViolation("the peer sent a second Hello"))
        return False

    def _check_stall(self, peer_work: int) -> None:
        """Fail if neither party makes progress; waiting for a busy peer is not a stall."""
        now = self._clock.now()
        state = (self._work.value, peer_work)
        if state != self._last_state:
            self._last_state, self._last_progress = state, now
            return
        idle, stall = now - self._last_progress, self._timeouts.stall
        if idle > stall:
            raise PeerLost(
                "the peer is alive, but neither party made progress for "
                f"{stall:g} s (timeouts.stall)"
            )
        if idle > REPORT_STALL:
            self._stalls.tell(
                f"neither party has made progress for {idle:.0f} s; the session ends after "
                f"{stall:g} s (timeouts.stall)",
                "stall",
            )

    def _send_farewell(self, farewell: Goodbye | Abort) -> None:
        with self._farewell_lock:
            if self._farewell_sent:
                return
            self._farewell_sent = True
        try:
            self._control.send(farewell)
        except FloristError:
            log.debug("the link failed before the final message was sent")

    def _wait_for_goodbye(self) -> None:
        """Wait for the peer, which may still be saving its result; heartbeats show it is alive."""
        self._peer_ended.wait()
        if not self._peer_done.is_set():
            raise self._link.failure or PeerLost("the peer closed the connection")


class _Counter:
    """A thread-safe counter."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = Lock()

    def add(self, amount: int) -> None:
        with self._lock:
            self.value += amount


def make_hello(
    role: str, release: str, agreement: str, stage: str, *, finished: bool = False
) -> Hello:
    """This party's first message; `finished` if it has its result of the stage."""
    return Hello(PROTOCOL_VERSION, role, release, agreement, stage, finished)


def _compare(ours: Hello, theirs: Hello) -> None:
    """Compare both parties' hellos; both parties find the same differences.

    Raises:
        ConfigurationError: the protocol versions or the stages differ, or the roles are the same.
        AgreementMismatch: the agreements differ; names each field.
        NoStageToRun: everything matches, but there is no stage to run together now.
    """
    if theirs.protocol != ours.protocol:
        raise ConfigurationError(
            f"this party uses protocol version {ours.protocol}, the peer protocol version "
            f"{theirs.protocol} (release {_shown(theirs.release)}); run the same release on both "
            "sides"
        )
    if theirs.role == ours.role:
        raise ConfigurationError(
            f"both parties run with --role {ours.role}; one must be active, the other passive"
        )
    if found := differences(ours.agreement, theirs.agreement):
        raise AgreementMismatch(found)
    if ours.stage != PREFLIGHT:
        _compare_stages(ours, theirs)


def _compare_stages(ours: Hello, theirs: Hello) -> None:
    """Compare the first stages that the parties have not completed; usually they are the same."""
    if theirs.stage == PREFLIGHT:
        raise PeerRunsPreflight
    if theirs.stage == ours.stage:
        if ours.finished and theirs.finished:
            raise StageAlreadyComplete
        return
    order: dict[str, int] = {stage: index for index, stage in enumerate(STAGES)}
    if ours.stage in order and theirs.stage in order:
        behind = ours if order[ours.stage] < order[theirs.stage] else theirs
        if behind.finished:
            raise StageAlreadyComplete if behind is ours else PeerInEarlierStage
    raise ConfigurationError(
        f"this party runs --stage {ours.stage}, the peer --stage {_shown(theirs.stage)}; start "
        "both with the same stage. If one party has lost the result of a completed stage, restore "
        "it, or start both with --force"
    )


def _peer_failed(abort: Abort) -> PeerFailed:
    return PeerFailed(
        f"the peer stopped: {_shown(abort.reason) or 'no reason given'}",
        will_reconnect=abort.will_reconnect,
    )


def _shown(text: str) -> str:
    """Text from the peer, made safe to print."""
    return printable(text, REASON_LIMIT)
