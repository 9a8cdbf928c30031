"""Opens the session of a stage: connects, performs the handshake, and retries where needed."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError
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
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from florist.common.core.clock import Clock
    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageState
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.session")


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


def own_credentials(config: PartyConfig, *, plaintext: bool) -> Credentials | None:
    """This party's TLS files, checked; None only if `plaintext` is true.

    Raises:
        ConfigurationError: a file cannot be used, or no files are configured.
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
        tls.authority, tls.certificate, tls.key, config.party.name, tls.peer_key_sha256
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
    party waits for the peer to connect again.

    Args:
        role: this party's role.
        config: this party's configuration.
        stage: the stage to run.
        timeout: seconds for each attempt to connect.
        plaintext: connect without TLS.
        clock: the session's clock.

    Raises:
        StageAlreadyComplete: both parties have their results.
        TransportError: the peer did not connect within `timeout` seconds.
    """
    agreement = config.agreement.canonical()
    hello = make_hello(role.name, RELEASE, agreement, stage.name, finished=stage.is_finished)
    timeouts = SessionTimeouts(config.timeouts.silence, config.timeouts.stall)
    while True:
        with ExitStack() as stack:
            link = stack.enter_context(role.connect(config, plaintext, timeout))
            try:
                session = stack.enter_context(Session(link, hello, timeouts, clock))
            except PeerRunsPreflight:
                log.info("%s has checked the connection; waiting for its run", config.party.peer)
                continue
            except PeerInEarlierStage:
                log.info("%s is completing an earlier stage; waiting for it", config.party.peer)
                continue
            log.info("connected to %s; the agreements are identical", config.party.peer)
            yield session
            return
