"""A simulated network between the two parties: delays, loss, cuts and half-open connections.

Messages of a channel arrive in order, as in a stream of TCP; those of different channels overtake
one another. Lost packets are sent again, so that loss is delay, until the connection breaks. Each
end learns of a break at another moment, or only from the silence of the peer.
"""

from __future__ import annotations

import heapq
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.errors import PeerLost, TransportError
from florist.common.stages.role import ForwardingRole
from florist.common.transport.in_memory import InMemoryLink
from florist.common.transport.pipes import GRACE, Pipe, PipeChannel
from tests.schedules.patching import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random
    from threading import Condition

    from florist.common.core.roles import RoleName
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.transport.channel import Link
    from florist.common.transport.messages import Message
    from tests.schedules.scheduler import Scheduler, Task

#: Messages that a channel holds in each direction before `send` waits.
_CAPACITY = 4

#: Seconds until a packet is sent again.
_RETRY = 0.2


@dataclass(frozen=True)
class Conditions:
    """How good the network is."""

    #: Mean seconds until a message arrives.
    delay: float = 0.01
    #: The fraction of packets that is lost.
    loss: float = 0.0


class Network:
    """The network of one schedule, with a thread that lets things happen later."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        conditions: Conditions,
        on_message: Callable[[str], None],
    ) -> None:
        """`on_message` is called for each message, with `send` or `arrive`."""
        self.scheduler = scheduler
        self.clock = SimulatedClock(scheduler)
        self.conditions = conditions
        self.on_message = on_message
        #: Called with the sender and each message that it sends.
        self.on_send: Callable[[RoleName, Message], None] = lambda _role, _message: None
        self._random = random
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._task: Task | None = None
        self._is_closed = False
        #: Until when nothing gets through.
        self.down_until = 0.0
        self.listener: Listener | None = None
        self.connections: list[Connection] = []

    # -- time --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = self.scheduler.spawn("network", self._run, None)

    def close(self) -> None:
        self._is_closed = True
        self._wake()

    def forget(self) -> None:
        """Drop all connections, whose errors hold what the parties have left behind."""
        self.listener = None
        self.connections.clear()
        self._later.clear()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after this time."""
        self._number += 1
        heapq.heappush(self._later, (self.scheduler.now + seconds, self._number, action))
        self._wake()

    def _wake(self) -> None:
        if self._task is not None:
            self.scheduler.wake(self._task)

    def _run(self) -> None:
        while not self._is_closed:
            if self._later and self._later[0][0] <= self.scheduler.now:
                heapq.heappop(self._later)[2]()
            else:
                left = self._later[0][0] - self.scheduler.now if self._later else None
                self.scheduler.wait(left, "something to happen in the network")

    def transit(self) -> float:
        """Return the seconds that the next message takes."""
        seconds = self._random.expovariate(1 / self.conditions.delay)
        retry = _RETRY
        while self._random.random() < self.conditions.loss:
            seconds += retry
            retry *= 2
        return seconds

    # -- faults ------------------------------------------------------------------------------------

    def cut(self, seconds: float, *, notice: tuple[float | None, float | None]) -> None:
        """Break the connection, and let no other through for some time.

        `notice` has the seconds until the active and the passive party notice it; None: never.
        """
        self.down_until = max(self.down_until, self.scheduler.now + seconds)
        for connection in self.open_connections():
            connection.lose_messages()
            for link, after in zip(connection.links, notice, strict=True):
                if after is not None:
                    self.later(after, link.lose)

    def hold(self, seconds: float) -> None:
        """Let nothing through for some time, without breaking the connection."""
        until = self.scheduler.now + seconds
        self.down_until = max(self.down_until, until)

    def party_died(self, role: RoleName, *, power: bool) -> None:
        """Close the connections of a killed process; after a power failure nothing is said."""
        if self.listener is not None and role == "active":
            self.listener = None
        for connection in self.open_connections():
            own, peer = connection.links if role == "active" else connection.links[::-1]
            own.is_dead = True
            if power:
                connection.lose_messages()
            else:
                self.later(GRACE + self.transit(), peer.lose)

    def open_connections(self) -> list[Connection]:
        """Return the connections that at least one party still uses."""
        self.connections = [each for each in self.connections if each.is_open]
        return self.connections

    # -- connecting --------------------------------------------------------------------------------

    def accept(self, timeout: float, peer: str) -> SimulatedLink:
        """Wait for the passive party."""
        listener = self.listener = Listener()
        deadline = self.scheduler.now + timeout
        while listener.link is None:
            left = deadline - self.scheduler.now
            if left <= 0:
                if self.listener is listener:
                    self.listener = None
                raise TransportError(f"{peer} did not connect within {timeout:g} s")
            listener.task = self.scheduler.current
            self.scheduler.wait(left, f"{peer} to connect")
        return listener.link

    def dial(self, timeout: float, peer: str) -> SimulatedLink:
        """Connect to the active party."""
        deadline, pause = self.scheduler.now + timeout, 0.25
        while True:
            self.scheduler.sleep(self.transit())
            listener = self.listener
            if listener is not None and self.scheduler.now >= self.down_until:
                self.listener = None
                connection = Connection(self)
                self.connections.append(connection)
                listener.link = connection.links[0]
                if listener.task is not None:
                    self.scheduler.wake(listener.task)
                return connection.links[1]
            pause = min(2 * pause, 2.0)
            if self.scheduler.now + pause >= deadline:
                raise TransportError(f"{peer} cannot be reached within {timeout:g} s")
            self.scheduler.sleep(pause)


@dataclass(eq=False)
class Listener:
    """The active party while it waits."""

    link: SimulatedLink | None = None
    task: Task | None = None


class Connection:
    """Two linked ends."""

    def __init__(self, network: Network) -> None:
        from threading import Condition  # noqa: PLC0415 - a simulated one

        self.network = network
        #: Messages that were sent before this time and have not arrived are lost.
        self.is_broken = False
        lock = Condition()
        self.links = (SimulatedLink(self, "active", lock), SimulatedLink(self, "passive", lock))
        self.links[0].join(self.links[1])
        self.links[1].join(self.links[0])

    @property
    def is_open(self) -> bool:
        return not all(link.is_over for link in self.links)

    def deliver(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something arrive at an end after some time, unless the connection breaks."""
        self.network.later(seconds, lambda: None if self.is_broken else action())

    def lose_messages(self) -> None:
        """Lose what is on the way, and all that is sent from now on."""
        self.is_broken = True
        for link in self.links:
            for channel in link.all_channels:
                channel.incoming.lose()


class InTransit(deque[bytes]):
    """The messages of a pipe; it looks empty until the first one has arrived."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._times: deque[float] = deque()
        self.last = 0.0

    def __bool__(self) -> bool:
        return bool(self._times) and self._times[0] <= self._connection.network.scheduler.now

    def append(self, data: bytes) -> None:
        network = self._connection.network
        now = network.scheduler.now
        start = max(now, network.down_until)  # a packet gets through when the network is back
        self.last = max(self.last, start + network.transit())
        super().append(data)
        self._times.append(float("inf") if self._connection.is_broken else self.last)

    def popleft(self) -> bytes:
        self._times.popleft()
        return super().popleft()

    def lose(self) -> None:
        now = self._connection.network.scheduler.now
        self._times = deque(time if time <= now else float("inf") for time in self._times)


class SimulatedPipe(Pipe):
    """A pipe whose messages take time."""

    _messages: InTransit

    def __init__(self, connection: Connection) -> None:
        super().__init__(_CAPACITY, connection.network.clock)
        self._connection = connection
        self._messages = InTransit(connection)

    def put(self, data: bytes, check: Callable[[], None]) -> None:
        network = self._connection.network
        network.on_message("send")
        super().put(data, check)
        self._connection.deliver(self._messages.last - network.scheduler.now, self.wake)

    def get(self, check: Callable[[], None], timeout: float | None = None) -> bytes | None:
        data = super().get(check, timeout)
        self._connection.network.on_message("receive")
        return data

    def end(self, *, drop: bool = False) -> None:
        if drop:
            super().end(drop=True)
            return
        wait = self._messages.last - self._connection.network.scheduler.now
        self._connection.deliver(max(0.0, wait), super().end)

    def lose(self) -> None:
        self._messages.lose()


class SimulatedChannel(PipeChannel):
    """One end of a channel; it shows what it sends."""

    incoming: SimulatedPipe
    outgoing: SimulatedPipe

    def __init__(
        self, link: SimulatedLink, name: str, incoming: SimulatedPipe, outgoing: SimulatedPipe
    ) -> None:
        super().__init__(name, link, incoming, outgoing)
        self._end_of = link

    def send(self, message: Message) -> None:
        self._end_of.network.on_send(self._end_of.role, message)
        super().send(message)


class SimulatedLink(InMemoryLink):
    """One end of a connection."""

    _peer: SimulatedLink

    def __init__(self, connection: Connection, role: RoleName, lock: Condition) -> None:
        super().__init__(_CAPACITY, GRACE, lock, connection.network.clock)
        self.role = role
        self._connection = connection
        self.network = connection.network
        #: Whether its process was killed.
        self.is_dead = False

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.is_dead

    @property
    def all_channels(self) -> list[SimulatedChannel]:
        return [
            channel for channel in self._channels.values() if isinstance(channel, SimulatedChannel)
        ]

    def lose(self) -> None:
        """Notice that the connection is broken."""
        if not self.is_over:
            self.fail(PeerLost("the connection to the peer was lost"))

    def _make(self, name: str) -> PipeChannel:
        theirs = self._peer._channels.get(name)
        if isinstance(theirs, SimulatedChannel):
            return SimulatedChannel(self, name, theirs.outgoing, theirs.incoming)
        pipes = SimulatedPipe(self._connection), SimulatedPipe(self._connection)
        return SimulatedChannel(self, name, *pipes)

    def _announce(self, channel: PipeChannel) -> None:
        self._connection.deliver(
            self.network.transit(),
            lambda: self._peer._peer_opened(channel.name),
        )

    def _end(self, *, in_order: bool) -> None:
        if in_order:
            last = 0.0
            for channel in self.all_channels:
                channel.close()
                last = max(last, channel.outgoing._messages.last)
            wait = max(0.0, last - self.network.scheduler.now) + self.network.transit()
            self._connection.deliver(wait, self._peer._peer_has_closed)
        elif not self._closed:
            self._connection.deliver(self._grace + self.network.transit(), self._peer.lose)


class ConnectedRole(ForwardingRole):
    """A role that connects through the simulated network."""

    def __init__(self, inner: Role, network: Network) -> None:
        super().__init__(inner)
        self._network = network

    @contextmanager
    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: ARG002, FBT001 - there is no TLS to simulate
        timeout: float,
    ) -> Iterator[Link]:
        network, peer = self._network, config.party.peer
        connect = network.accept if self.listens else network.dial
        link = connect(timeout, peer)
        try:
            yield link
        finally:
            link.close()
