"""A session: a link whose two ends have agreed, know that the other lives, and say why they stop.

To protocol code a session is a link. Beneath it the control channel carries the handshake, then a
heartbeat every few seconds from a thread of its own, then one farewell: `Goodbye`, or `Abort` with
the reason. A peer that is silent, or alive but idle while we are idle too, ends the session here.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self

from florist.common.core.errors import (
    AgreementMismatch,
    ChannelEnded,
    ConfigurationError,
    FloristError,
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

if TYPE_CHECKING:
    from types import TracebackType

    from florist.common.transport.channel import Channel, Link, Traffic

log = logging.getLogger("florist.session")

#: The stage of a party that only checks the connection and the agreement.
PREFLIGHT = "preflight"

#: Longest reason that is taken from the peer, in characters.
REASON_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """How long a session waits, in seconds."""

    #: For any sign of life.
    silence: float = 10.0
    #: While both are alive and neither makes progress.
    stall: float = 1800.0


class NoStageToRun(Exception):  # noqa: N818 - not an error
    """The agreements are equal, but the two do not run a stage together now."""


class PeerRunsPreflight(NoStageToRun):
    """The peer runs `florist preflight`, and has left again."""


class StageAlreadyComplete(NoStageToRun):
    """The peer has its result of this stage, and so have we."""


class PeerInEarlierStage(NoStageToRun):
    """The peer learns only now that an earlier stage is over, and comes again for this one."""


class Session:
    """An agreed link. Use as a context: leaving it says goodbye, or, on an error, why."""

    def __init__(self, link: Link, hello: Hello, patience: SessionTimeouts) -> None:
        self._link = link
        self._hello = hello
        self._patience = patience
        self._control: Channel = link.channel(CONTROL, timeout=patience.silence)
        self._work = _Counter()
        self._peer_done = Event()
        self._ended = Event()
        self._farewell_lock = Lock()
        self._farewell_said = False
        self._last_state = (-1, -1)
        self._last_move = time.monotonic()

    # -- as protocol code sees it ------------------------------------------------------------------

    @property
    def traffic(self) -> Traffic:
        return self._link.traffic

    @property
    def failure(self) -> FloristError | None:
        return self._link.failure

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return self._link.channel(name, timeout)

    def fail(self, error: FloristError) -> None:
        """Tell the peer why, then end the link here. The first error wins."""
        if self._link.failure is None and not isinstance(error, PeerFailed | TransportError):
            self._say_farewell(Abort(error.for_peer[:REASON_LIMIT], error.returns))
        self._link.fail(error)

    def close(self) -> None:
        self._ended.set()
        self._link.close()

    def count_work(self, amount: int) -> None:
        """Progress of ours, so that the peer can tell waiting from hanging."""
        self._work.add(amount)

    # -- its life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._handshake()
        except NoStageToRun:
            self._say_farewell(Goodbye())
            self.close()
            raise
        except BaseException as error:
            self._end_badly(error)
            raise
        for target in (self._beat, self._listen):
            Thread(target=target, name=f"session-{target.__name__}", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._end_badly(error)
            return
        try:
            self._say_farewell(Goodbye())
            self._wait_for_goodbye()
        finally:
            self.close()

    def _end_badly(self, error: BaseException) -> None:
        self.fail(as_florist_error(error))
        self.close()

    def _handshake(self) -> None:
        self._control.send(self._hello)
        try:
            message = self._control.receive(Control, timeout=self._patience.silence)
        except ChannelEnded:
            raise PeerLost("the peer ended the session before it greeted us") from None
        match message:
            case Hello() as theirs:
                _compare(self._hello, theirs)
            case Abort() as abort:
                raise _peer_failed(abort)
            case _:
                raise ProtocolViolation("the peer's first message is no greeting")

    def _beat(self) -> None:
        """Say every few seconds that we live."""
        while not self._ended.wait(self._patience.silence / 4):
            try:
                self._control.send(Heartbeat(self._work.value))
            except FloristError:
                return  # the link has failed; every caller of the session sees why

    def _listen(self) -> None:
        """Hear whether the peer lives, finishes, or gives up."""
        try:
            while self._hear(self._next_message()):
                pass
        except ProtocolViolation as error:
            self.fail(error)
        except FloristError as error:
            self._link.fail(error)  # the peer is gone or silent

    def _next_message(self) -> Control:
        """What comes next on `control`; a heartbeat may be late behind a flood of other data."""
        while True:
            heard = self._link.traffic.received
            try:
                return self._control.receive(Control, timeout=self._patience.silence)
            except PeerLost:
                if self._link.failure is not None or self._link.traffic.received == heard:
                    raise

    def _hear(self, message: Control) -> bool:
        """Take one message of the peer's; False after its last."""
        match message:
            case Heartbeat(work):
                self._check_stall(work)
                return True
            case Goodbye():
                self._peer_done.set()
            case Abort() as abort:
                self._link.fail(_peer_failed(abort))
            case _:
                self.fail(ProtocolViolation("the peer greeted twice"))
        return False

    def _check_stall(self, peer_work: int) -> None:
        """Fail when neither side moves: one that waits for a working peer is no stall."""
        now = time.monotonic()
        state = (self._work.value, peer_work)
        if state != self._last_state:
            self._last_state, self._last_move = state, now
        elif now - self._last_move > self._patience.stall:
            raise PeerLost(
                f"the peer is alive, but neither side made progress for {self._patience.stall:g} s"
            )

    def _say_farewell(self, farewell: Goodbye | Abort) -> None:
        with self._farewell_lock:
            if self._farewell_said:
                return
            self._farewell_said = True
        try:
            self._control.send(farewell)
        except FloristError:
            log.debug("the link was gone before the farewell")

    def _wait_for_goodbye(self) -> None:
        """The peer may still be saving its result; its heartbeats show that it lives."""
        while not self._peer_done.wait(0.05):
            if self._link.failure is not None:
                raise self._link.failure


class _Counter:
    """A number that several threads add to."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = Lock()

    def add(self, amount: int) -> None:
        with self._lock:
            self.value += amount


def make_hello(
    role: str, release: str, agreement: str, stage: str, *, finished: bool = False
) -> Hello:
    """What this party says first; `finished` if it has its result of the stage."""
    return Hello(PROTOCOL_VERSION, role, release, agreement, stage, finished)


def _compare(ours: Hello, theirs: Hello) -> None:
    """Both sides see both greetings, so both find the same differences.

    Raises:
        ConfigurationError: other protocol, same role, other stage.
        AgreementMismatch: field by field.
        NoStageToRun: all is well, but there is nothing to run together now.
    """
    if theirs.protocol != ours.protocol:
        raise ConfigurationError(
            f"protocol version {ours.protocol} here, {theirs.protocol} at the peer "
            f"(release {_shown(theirs.release)}): run the same release on both sides"
        )
    if theirs.role == ours.role:
        raise ConfigurationError(
            f"both parties run with --role {ours.role}: one must be active, the other passive"
        )
    if found := differences(ours.agreement, theirs.agreement):
        raise AgreementMismatch(found)
    if ours.stage != PREFLIGHT:
        _compare_stages(ours, theirs)


def _compare_stages(ours: Hello, theirs: Hello) -> None:
    """Each party names the first stage that is not over for it; mostly it is the same one."""
    if theirs.stage == PREFLIGHT:
        raise PeerRunsPreflight
    if theirs.stage == ours.stage:
        if ours.finished and theirs.finished:
            raise StageAlreadyComplete
        return
    order: dict[str, int] = {stage: place for place, stage in enumerate(STAGES)}
    if ours.stage in order and theirs.stage in order:
        behind = ours if order[ours.stage] < order[theirs.stage] else theirs
        if behind.finished:
            raise StageAlreadyComplete if behind is ours else PeerInEarlierStage
    raise ConfigurationError(
        f"--stage {ours.stage} here, --stage {_shown(theirs.stage)} at the peer: start both with "
        "the same; if one has lost what it had finished, restore it, or start both with --force"
    )


def _peer_failed(abort: Abort) -> PeerFailed:
    return PeerFailed(
        f"the peer stopped: {_shown(abort.reason) or 'it gave no reason'}",
        returns=abort.will_reconnect,
    )


def _shown(text: str) -> str:
    """The peer's words."""
    return printable(text, REASON_LIMIT)
