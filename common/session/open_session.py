"""Opens the session of a stage: connects, performs the handshake, and retries where needed."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError, PeerCannotStart
from florist.common.core.release import RELEASE
from florist.common.session.session import (
    PeerInEarlierStage,
    PeerRunsPreflight,
    Session,
    SessionTimeouts,
    make_hello,
)
from florist.common.transport.credentials import Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from florist.common.core.clock import Clock
    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageState
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.session")


#: Seconds for an attempt to connect when the time for all of them is nearly over.
_LEAST_WAIT = 1.0


class ConnectingRole(Protocol):
    """The part of a role that a session needs: its name, and how it connects to the peer."""

    @property
    def name(self) -> RoleName: ...

    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001 - a protocol of three plain arguments
        timeout: float,
    ) -> AbstractContextManager[Link]:
        """Connect with mutual TLS unless `plaintext`, within `timeout` seconds.

        The link is closed when the context ends.
        """
        ...


def waiting_log(peer: str, timeout: float) -> Callable[[str], None]:
    """Return what logs the reason for waiting for the peer, and until when at most."""
    until = datetime.now().astimezone() + timedelta(seconds=timeout)

    def tell(reason: str) -> None:
        log.info("waiting for %s, until %s at most: %s", peer, f"{until:%Y-%m-%d %H:%M:%S}", reason)

    return tell


def own_credentials(
    config: PartyConfig, *, plaintext: bool, at_any_time: bool = False
) -> Credentials | None:
    """This party's TLS files, checked; None only if `plaintext` is true.

    With `at_any_time`, certificates that have expired or are not valid yet are accepted.

    Raises:
        ConfigurationError: a file cannot be used, or no files are configured.
        NotValidNow: the only problem is the time.
    """
    if plaintext:
        return None
    tls = config.network.tls
    if tls is None:
        raise ConfigurationError(
            "network.tls is missing: set the authority's certificate, this party's certificate and "
            "its key; `florist certs` creates them"
        )
    return Credentials.load(
        tls.authority,
        tls.certificate,
        tls.key,
        config.party.name,
        tls.peer_key_sha256,
        tls.peer_authority,
        at_any_time=at_any_time,
    )


@contextmanager
def open_session(
    role: ConnectingRole,
    config: PartyConfig,
    stage: StageState,
    *,
    timeout: float,
    plaintext: bool,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Session]:
    """A session with the peer for `stage`; it closes when the context ends.

    A peer that runs `florist preflight` compares the agreements and disconnects. A peer that does
    not know yet that an earlier stage is complete learns it and disconnects. In both cases this
    party waits for the peer to connect again, and so it does for a peer that cannot start, if
    `timeouts.if_peer_cannot_start` says so.

    Args:
        role: this party's role.
        config: this party's configuration.
        stage: the stage to run.
        timeout: seconds to wait for the peer, however often it connects and disconnects.
        plaintext: connect without TLS.
        clock: the session's clock.

    Raises:
        StageAlreadyComplete: both parties have their results.
        TransportError: the peer did not connect within `timeout` seconds.
        PeerCannotStart: it connected to say so.
    """
    agreement = config.agreement.canonical()
    hello = make_hello(role.name, RELEASE, agreement, stage.name, finished=stage.is_finished)
    timeouts = SessionTimeouts(config.timeouts.silence, config.timeouts.stall)
    deadline = clock.now() + timeout
    while True:
        with ExitStack() as stack:
            left = max(deadline - clock.now(), _LEAST_WAIT)
            link = stack.enter_context(role.connect(config, plaintext, left))
            try:
                session = stack.enter_context(Session(link, hello, timeouts, clock))
            except PeerRunsPreflight:
                log.info("%s has checked the connection; waiting for its run", config.party.peer)
                continue
            except PeerInEarlierStage:
                log.info("%s is completing an earlier stage; waiting for it", config.party.peer)
                continue
            except PeerCannotStart as error:
                left = deadline - clock.now()
                if config.timeouts.if_peer_cannot_start == "stop" or left <= 0:
                    raise
                log.warning(
                    "%s; waiting for %s to be started again, for %.0f s at most "
                    "(timeouts.if_peer_cannot_start)",
                    error,
                    config.party.peer,
                    left,
                )
                continue
            log.info("connected to %s; the agreements are identical", config.party.peer)
            yield session
            return
