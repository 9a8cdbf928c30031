"""A link between two ends in one process."""

from __future__ import annotations

from threading import Condition, Timer
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import PeerLost
from florist.common.transport.channel import CONTROL
from florist.common.transport.pipes import GRACE, PipeChannel, PipeLink

if TYPE_CHECKING:
    from florist.common.core.clock import Clock


def linked_pair(
    capacity: int = 8, *, grace: float = GRACE, clock: Clock = SYSTEM_CLOCK
) -> tuple[InMemoryLink, InMemoryLink]:
    """Two linked ends.

    Args:
        capacity: messages that a channel holds in each direction before `send` waits.
        grace: seconds after which an end notices that the other one has failed.
        clock: the clock for timeouts.
    """
    lock = Condition()
    left, right = (InMemoryLink(capacity, grace, lock, clock) for _ in range(2))
    left.join(right)
    right.join(left)
    return left, right


class InMemoryLink(PipeLink):
    """One end of a `linked_pair`."""

    _peer: InMemoryLink

    def __init__(self, capacity: int, grace: float, lock: Condition, clock: Clock) -> None:
        super().__init__(capacity, lock, clock)
        self._grace = grace

    def join(self, peer: InMemoryLink) -> None:
        """Make `peer` the other end. As over the network, `control` is open from the start."""
        self._peer = peer
        self._peer_opened(CONTROL)

    def _make(self, name: str) -> PipeChannel:
        theirs = self._peer._channels.get(name)  # noqa: SLF001 - the other end of the same link
        if theirs is None:
            return super()._make(name)
        return PipeChannel(name, self, incoming=theirs.outgoing, outgoing=theirs.incoming)

    def _announce(self, channel: PipeChannel) -> None:
        self._peer._peer_opened(channel.name)  # noqa: SLF001

    def _end(self, *, in_order: bool) -> None:
        if in_order:
            for channel in list(self._channels.values()):
                channel.close()
            self._peer._peer_has_closed()  # noqa: SLF001
        elif not self._closed:
            error = PeerLost("the connection to the peer was lost")
            notice = Timer(self._grace, self._peer.fail, [error])
            notice.daemon = True
            notice.start()
