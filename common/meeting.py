"""How a stage meets its peer: connect, shake hands, and again while the peer only checks."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from florist.common.channel.credentials import Credentials
from florist.common.errors import ConfigurationError
from florist.common.release import RELEASE
from florist.common.session import (
    Patience,
    PeerIsBehind,
    PeerOnlyChecks,
    Session,
    make_hello,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.config import PartyConfig
    from florist.common.role import Role
    from florist.common.stage import Stage

log = logging.getLogger("florist.meeting")


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
def meet(
    role: Role, config: PartyConfig, stage: Stage, *, patience: float, plaintext: bool
) -> Iterator[Session]:
    """A session with the peer for `stage`; it ends with the context.

    A peer that runs `florist preflight` compares agreements and leaves; one that still has a stage
    to close that is over here closes it. This side then waits for its run.

    Raises:
        StageIsOver: both have their results.
        TransportError: the peer did not come within `patience` seconds.
    """
    agreement = config.agreement.canonical()
    hello = make_hello(role.name, RELEASE, agreement, stage.name, finished=stage.is_finished)
    while True:
        with ExitStack() as stack:
            link = stack.enter_context(role.connect(config, plaintext, patience))
            times = Patience(config.patience.silence, config.patience.stall)
            try:
                session = stack.enter_context(Session(link, hello, times))
            except PeerOnlyChecks:
                log.info("%s has checked the connection; waiting for its run", config.party.peer)
                continue
            except PeerIsBehind:
                log.info("%s ends an earlier stage; waiting for it", config.party.peer)
                continue
            log.info("connected to %s; the agreements are equal", config.party.peer)
            yield session
            return
