"""Runs a stage across lost connections: works with the peer until both have their results.

When the peer is lost (network failure, crash, restart), this party waits for it for up to
`timeouts.outage` seconds, and the two resume from what both have saved. The work of a stage must
therefore be restartable: it first looks at what is on disk.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import FloristError, PeerFailed, PeerLost, TransportError
from florist.common.session.open_session import open_session
from florist.common.session.session import StageAlreadyComplete

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.core.clock import Clock
    from florist.common.session.open_session import ConnectingRole
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageState
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.session")

#: Seconds after which a session counts as stable: the next loss gets the full outage time again.
STABLE_AFTER = 60.0

#: Seconds between a loss and the next attempt, so that the peer can notice the loss as well.
PAUSE = 0.5


def run_with_peer(
    role: ConnectingRole,
    config: PartyConfig,
    stage: StageState,
    work: Callable[[Session], None],
    *,
    plaintext: bool,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Run `work`, which saves its result, in a session; after a loss, run it in a new session.

    Returns when both parties have their results.

    Raises:
        TransportError: the peer did not connect, or did not reconnect in time.
        FloristError: the error that ended the work, here or at the peer.
    """
    outage = Outage(config.timeouts.outage, clock)
    while True:
        started = clock.now()
        try:
            with open_session(
                role,
                config,
                stage,
                timeout=outage.connect_timeout(config.timeouts.connect),
                plaintext=plaintext,
                clock=clock,
            ) as session:
                if outage.is_under_way:
                    log.info("%s is back", config.party.peer)
                started = clock.now()
                work(session)
                stage.finish()
        except StageAlreadyComplete:
            break
        except (TransportError, PeerFailed) as error:
            if not outage.should_wait(error, lasted=clock.now() - started):
                if _never_connected(error) and stage.is_finished:
                    log.warning("%s; this party's result is complete", error)
                    break
                raise
            log.warning(
                "%s; waiting for %s, for %.0f s at most (timeouts.outage)",
                error,
                config.party.peer,
                outage.remaining,
            )
            clock.sleep(PAUSE)
        else:
            break
    stage.close()


@dataclass
class Outage:
    """How long the peer has been away, and whether to keep waiting for it."""

    #: The maximum length of an outage in seconds; 0 means not to wait at all.
    longest: float
    clock: Clock = SYSTEM_CLOCK
    #: The time at which waiting ends; None if there has been no recent loss.
    deadline: float | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the peer was lost recently."""
        return self.deadline is not None

    @property
    def remaining(self) -> float:
        """Seconds left to wait."""
        return self.longest if self.deadline is None else self.deadline - self.clock.now()

    def connect_timeout(self, first: float) -> float:
        """Seconds to wait for the next connection: `first` unless the peer was lost recently."""
        return first if self.deadline is None else max(1.0, self.remaining)

    def should_wait(self, error: FloristError, lasted: float) -> bool:
        """Whether to wait for the peer after `error` ended a session of `lasted` seconds."""
        if lasted > STABLE_AFTER and not _never_connected(error):
            self.deadline = None
        is_first = self.deadline is None
        if self.longest == 0 or not _may_return(error, is_first=is_first):
            return False
        if is_first:
            self.deadline = self.clock.now() + self.longest
        return self.remaining > 0


def _may_return(error: FloristError, *, is_first: bool) -> bool:
    match error:
        case PeerFailed():
            return error.will_reconnect
        case PeerLost():
            return True
        case _:  # never connected: a configuration error, unless the peer was connected before
            return not is_first


def _never_connected(error: FloristError) -> bool:
    """Whether the error occurred before there was a session."""
    return isinstance(error, TransportError) and not isinstance(error, PeerLost)
