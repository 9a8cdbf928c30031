"""Telling the peer that this party cannot start, so that it does not wait and blame the network.

A party that rejects its own configuration, tables or disk has not connected yet, and the peer may
be waiting for it. It connects for a few seconds, sends `Abort` in place of `Hello`, and ends.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from florist.common.core.errors import (
    ConfigurationError,
    FloristError,
    InternalError,
    TransportError,
)
from florist.common.session.open_session import ConnectingRole, own_credentials
from florist.common.session.session import REASON_LIMIT
from florist.common.storage.private_files import FolderInUse
from florist.common.transport.certificate_check import NotValidNow
from florist.common.transport.channel import CONTROL
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.grpc_listener import GrpcListener
from florist.common.transport.messages import Abort, Control

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.settings.party_config import PartyConfig
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.session")


class StartingRole(ConnectingRole, Protocol):
    """The part of a role that a notice needs."""

    @property
    def listens(self) -> bool:
        """Whether it listens for the connection; otherwise it dials."""
        ...


def is_worth_telling(error: FloristError) -> bool:
    """Whether the peer should know why this party did not start.

    If another process of this party is running, the peer has it to talk to.
    """
    return isinstance(error, ConfigurationError | InternalError) and not isinstance(
        error, FolderInUse
    )


def tell_peer(
    role: StartingRole, config: PartyConfig, error: FloristError, *, plaintext: bool
) -> bool:
    """Tell the peer that this party cannot start, for `timeouts.notice` seconds at most.

    The peer is told `error.for_peer`, which names no path, column or value.

    Returns:
        Whether the peer was told. Nothing is raised: the caller has an error to report already.
    """
    seconds, peer = config.timeouts.notice, config.party.peer
    if not seconds:
        return False
    log.info(
        "this party cannot start; telling %s so, for %g s at most (timeouts.notice)", peer, seconds
    )
    try:
        try:
            with role.connect(config, plaintext, seconds) as link:
                _send(link, error, seconds)
        except NotValidNow:
            # The peer's TLS rejects our certificate unless only our own clock is wrong. Either way
            # it sees that we tried, and its log names certificates and clocks.
            with _connected_anyway(role, config, seconds) as link:
                _send(link, error, seconds)
    except FloristError as failure:
        log.info("%s was not told: %s", peer, failure.reason)
        return False
    log.info("%s was told: %s", peer, error.for_peer)
    return True


def _send(link: Link, error: FloristError, seconds: float) -> None:
    control = link.channel(CONTROL, timeout=seconds)
    control.send(Abort(error.for_peer[:REASON_LIMIT]))
    control.receive(Control, timeout=seconds)  # its Hello: it reads ours now, or its own notice


@contextmanager
def _connected_anyway(role: StartingRole, config: PartyConfig, seconds: float) -> Iterator[Link]:
    """Connect with certificates that are not valid at the time that our clock shows."""
    credentials = own_credentials(config, plaintext=False, at_any_time=True)
    address, peer = config.network.address, config.party.peer
    if not role.listens:
        link = dial(address, credentials, peer, seconds)
        try:
            yield link
        finally:
            link.close()
        return
    listener = GrpcListener(address, credentials, peer)
    try:
        listener.start()
        link = listener.accept(seconds)
        try:
            yield link
        finally:
            link.close()
    except OSError as error:
        raise TransportError(f"{address}: {error}") from None
    finally:
        listener.close()
