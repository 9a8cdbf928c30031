"""A stage that outlives its connection: work with the peer until both have it done.

When the peer is lost (a cut line, a crash, a restart) this party waits for it, for
`timeouts.outage` at most, and the two go on from what both have kept. Work is therefore written so
that it can be begun again: it looks at the disk first.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import FloristError, PeerFailed, PeerLost, TransportError
from florist.common.session.open_session import open_session
from florist.common.session.session import StageAlreadyComplete

if TYPE_CHECKING:
    from collections.abc import Callable

    from florist.common.session.open_session import ConnectingRole
    from florist.common.session.session import Session
    from florist.common.session.stage_state import StageState
    from florist.common.settings.party_config import PartyConfig

log = logging.getLogger("florist.session")

#: Seconds of a session after which the next loss is a new one, with all of our patience.
STEADY = 60.0

#: Seconds between a loss and the next attempt: the other side may have to notice it first.
PAUSE = 0.5


def run_with_peer(
    role: ConnectingRole,
    config: PartyConfig,
    stage: StageState,
    work: Callable[[Session], None],
    *,
    plaintext: bool,
) -> None:
    """Run `work`, which saves its result, in a session with the peer; after a loss, in a new one.

    Returns when both parties have their results.

    Raises:
        TransportError: the peer did not come, or did not come back in time.
        FloristError: what ended the work, here or at the peer.
    """
    outage = Outage(config.timeouts.outage)
    while True:
        began = time.monotonic()
        try:
            with open_session(
                role,
                config,
                stage,
                patience=outage.patience(config.timeouts.connect),
                plaintext=plaintext,
            ) as session:
                outage.ended(config.party.peer)
                began = time.monotonic()
                work(session)
                stage.finish()
        except StageAlreadyComplete:
            break
        except (TransportError, PeerFailed) as error:
            if not outage.should_wait(error, lasted=time.monotonic() - began):
                if _is_nobody_there(error) and stage.is_finished:
                    log.warning("%s; our own result is whole", error)
                    break
                raise
            log.warning(
                "%s; waiting for %s, for %.0f s at most (timeouts.outage)",
                error,
                config.party.peer,
                outage.left,
            )
            time.sleep(PAUSE)
        else:
            break
    stage.close()


@dataclass
class Outage:
    """The time without a peer that can be borne."""

    #: Seconds.
    longest: float
    #: When our patience ends; None while there was no loss, or it is long ago.
    deadline: float | None = None

    @property
    def left(self) -> float:
        """Seconds of patience."""
        return self.longest if self.deadline is None else self.deadline - time.monotonic()

    def patience(self, at_first: float) -> float:
        """Seconds for the next meeting."""
        return at_first if self.deadline is None else max(1.0, self.left)

    def ended(self, peer: str) -> None:
        """The peer is there."""
        if self.deadline is not None:
            log.info("%s is back", peer)

    def should_wait(self, error: FloristError, lasted: float) -> bool:
        """Whether to wait after this loss, of a session that `lasted` so many seconds."""
        if lasted > STEADY and not _is_nobody_there(error):
            self.deadline = None
        is_first = self.deadline is None
        if self.longest == 0 or not _may_return(error, is_first=is_first):
            return False
        if is_first:
            self.deadline = time.monotonic() + self.longest
        return self.left > 0


def _may_return(error: FloristError, *, is_first: bool) -> bool:
    match error:
        case PeerFailed():
            return error.returns
        case PeerLost():
            return True
        case _:  # not even connected: an error of the set-up, unless the peer has been there before
            return not is_first


def _is_nobody_there(error: FloristError) -> bool:
    """Whether there was no session at all."""
    return isinstance(error, TransportError) and not isinstance(error, PeerLost)
