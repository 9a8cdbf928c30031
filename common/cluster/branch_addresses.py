"""How the heads of two parties agree on where their branches connect."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from florist.common.core.errors import ProtocolViolation
from florist.common.settings.addresses import split_address
from florist.common.transport.messages import UnionBranches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.transport.channel import Channel

#: Bytes of a nonce, and of the name of a rendezvous.
NAME_BYTES = 16


def agree_on_rendezvous(
    channel: Channel, listening: Sequence[str], count: int
) -> tuple[Sequence[str], bytes]:
    """Tell the peer that our branches are ready, and wait for the peer's.

    Args:
        channel: the channel of the union's handshake.
        listening: `host:port` where each of our branches listens; empty if they dial.
        count: how many branches each party has.

    Returns:
        The address of each pair of branches, and a name for this rendezvous, which is random if
        either side is honest.

    Raises:
        ProtocolViolation: the peer's message is inconsistent.
    """
    nonce = secrets.token_bytes(NAME_BYTES)
    channel.send(UnionBranches(tuple(listening), nonce))
    theirs = _checked(channel.receive(UnionBranches), 0 if listening else count)
    both = min(nonce, theirs.nonce) + max(nonce, theirs.nonce)
    name = hashlib.sha256(b"florist/branches/1" + both).digest()[:NAME_BYTES]
    return listening or theirs.addresses, name


def _checked(message: UnionBranches, expected: int) -> UnionBranches:
    try:
        for address in message.addresses:
            split_address(address)
    except ValueError:
        raise ProtocolViolation(
            "the peer sent an invalid address for one of its branches"
        ) from None
    if len(message.addresses) != expected or len(message.nonce) != NAME_BYTES:
        raise ProtocolViolation("the peer's message about its branches is inconsistent")
    return message
