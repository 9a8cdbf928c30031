"""Two linked ends in one process."""

from __future__ import annotations

from threading import Condition, Timer

from florist.common.core.errors import PeerLost
from florist.common.transport.channel import CONTROL
from florist.common.transport.pipes import GRACE, PipeChannel, PipeLink


def linked_pair(capacity: int = 8, *, grace: float = GRACE) -> tuple[InMemoryLink, InMemoryLink]:
    """Two ends of one line.

    Args:
        capacity: messages that a channel holds each way before `send` waits.
        grace: seconds after which an end notices that the other has failed.
    """
    lock = Condition()
    left, right = InMemoryLink(capacity, grace, lock), InMemoryLink(capacity, grace, lock)
    left.join(right)
    right.join(left)
    return left, right


class InMemoryLink(PipeLink):
    """One end of a `linked_pair`."""

    _peer: InMemoryLink

    def __init__(self, capacity: int, grace: float, lock: Condition) -> None:
        super().__init__(capacity, lock)
        self._grace = grace

    def join(self, peer: InMemoryLink) -> None:
        """Make `peer` the other end. As over the network, both have `control` from the start."""
        self._peer = peer
        self._peer_asked_for(CONTROL)

    def _make(self, name: str) -> PipeChannel:
        theirs = self._peer._channels.get(name)  # noqa: SLF001 - the other half of this object
        if theirs is None:
            return super()._make(name)
        return PipeChannel(name, self, incoming=theirs.outgoing, outgoing=theirs.incoming)

    def _announce(self, channel: PipeChannel) -> None:
        self._peer._peer_asked_for(channel.name)  # noqa: SLF001

    def _end(self, *, in_order: bool) -> None:
        if in_order:
            for channel in list(self._channels.values()):
                channel.close()
            self._peer._peer_has_closed()  # noqa: SLF001
        elif not self._closed:
            error = PeerLost("the connection to the peer broke")
            notice = Timer(self._grace, self._peer.fail, [error])
            notice.daemon = True
            notice.start()
