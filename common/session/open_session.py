"""How a stage meets its peer: connect, shake hands, and again while the peer only checks."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

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

    from florist.common.core.roles import RoleName
    from florist.common.session.stage_state import StageState
    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.session")


class ConnectingRole(Protocol):
    """What a session needs of a role: its name, and how it connects to the peer."""

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
    """Our TLS files, checked; None only where plain text was asked for.

    Raises:
        ConfigurationError: a file cannot be used, or there are none.
    """
    if plaintext:
        return None
    tls = config.network.tls
    if tls is None:
        raise ConfigurationError(
            "network.tls is missing: name the authority's certificate, ours, and our key; "
            "`florist certs` makes them"
        )
    return Credentials.load(tls.authority, tls.certificate, tls.key, config.party.name)


@contextmanager
def open_session(
    role: ConnectingRole,
    config: PartyConfig,
    stage: StageState,
    *,
    patience: float,
    plaintext: bool,
) -> Iterator[Session]:
    """A session with the peer for `stage`; it ends with the context.

    A peer that runs `florist preflight` compares agreements and leaves; one that still has a stage
    to close that is over here closes it. This side then waits for its run.

    Raises:
        StageAlreadyComplete: both have their results.
        TransportError: the peer did not come within `patience` seconds.
    """
    agreement = config.agreement.canonical()
    hello = make_hello(role.name, RELEASE, agreement, stage.name, finished=stage.is_finished)
    while True:
        with ExitStack() as stack:
            link = stack.enter_context(role.connect(config, plaintext, patience))
            times = SessionTimeouts(config.timeouts.silence, config.timeouts.stall)
            try:
                session = stack.enter_context(Session(link, hello, times))
            except PeerRunsPreflight:
                log.info("%s has checked the connection; waiting for its run", config.party.peer)
                continue
            except PeerInEarlierStage:
                log.info("%s ends an earlier stage; waiting for it", config.party.peer)
                continue
            log.info("connected to %s; the agreements are equal", config.party.peer)
            yield session
            return
