"""How the heads of two parties have their branches meet."""

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

#: Of a nonce, and of the name of a meeting.
NAME_BYTES = 16


def agree_on_rendezvous(
    channel: Channel, listening: Sequence[str], count: int
) -> tuple[Sequence[str], bytes]:
    """Say that our branches are ready, and wait for the peer's.

    Args:
        channel: that of the union's opening.
        listening: host:port where each of ours listens; none if they dial.
        count: how many branches each party has.

    Returns:
        Where each pair of branches meets; and a name for the meeting, random if either side is.

    Raises:
        ProtocolViolation: what the peer says makes no sense.
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
        raise ProtocolViolation("the peer's branches have addresses that are none") from None
    if len(message.addresses) != expected or len(message.nonce) != NAME_BYTES:
        raise ProtocolViolation("what the peer says of its branches makes no sense")
    return message
