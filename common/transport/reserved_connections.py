"""Keeps some of a listener's connections free for the peer.

TLS admits any certificate of the authority, and gRPC neither says whose a connection is before it
makes a call nor closes one. So this module looks at the process's own sockets. Connections that are
not the peer's may be half of all; if there are more, the oldest of the address with the most is
closed. One that was refused, because its certificate is not the peer's, is closed soon after.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from contextlib import closing, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.clock import Clock

log = logging.getLogger("florist.transport")

#: Where the system lists the open files of this process.
_OPEN_FILES = Path("/dev/fd")
#: Seconds between two looks at the sockets, at least.
_INTERVAL = 0.02
#: Seconds for a refused caller to receive the reason.
_TO_HEAR_WHY = 1.0
_LOG_EVERY = 30.0


class RemoteAddress(NamedTuple):
    """The other end of a connection."""

    host: str
    port: int

    @classmethod
    def of_call(cls, peer: str) -> RemoteAddress | None:
        """Parse what gRPC calls the peer of a call, such as `ipv4:192.0.2.1:50000`."""
        host, _, port = unquote(peer).partition(":")[2].rpartition(":")
        if not port.isdecimal():
            return None
        return cls.of(host.removeprefix("[").removesuffix("]"), int(port))

    @classmethod
    def of(cls, host: str, port: int) -> RemoteAddress | None:
        """Normalise an address: an IPv4 address in IPv6 form is the IPv4 address."""
        try:
            address = ip_address(host)
        except ValueError:
            return None
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return cls(str(address), port)


class ReservedConnections:
    """Closes connections to one port that are not the peer's, if there are too many."""

    def __init__(self, others: int, clock: Clock = SYSTEM_CLOCK) -> None:
        """Allow `others` connections that are not, or not yet, known to be the peer's."""
        self._others = others
        self._clock = clock
        self._port = 0
        self._lock = Lock()
        self._of_peer: set[RemoteAddress] = set()
        #: When refused connections are closed.
        self._refused: dict[RemoteAddress, float] = {}
        #: Connections in the order in which they were first seen.
        self._seen: dict[RemoteAddress, None] = {}
        self._wake = Event()
        self._stopped = False
        self._log = RateLimitedLog(lambda text: log.warning("%s", text), _LOG_EVERY, clock)

    def start(self, port: int) -> None:
        """Start to watch the connections to this port."""
        self._port = port
        Thread(target=self._watch, name="florist-connections", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._stopped = True
        self._wake.set()

    def connected(self) -> None:
        """Note that there is a new connection."""
        self._wake.set()

    def admitted(self, peer: str) -> None:
        """Note that a call of the peer arrived over this connection."""
        if (address := RemoteAddress.of_call(peer)) is not None:
            with self._lock:
                self._of_peer.add(address)

    def refused(self, peer: str) -> None:
        """Note that a caller is not the peer; its connection is closed once it knows why."""
        if (address := RemoteAddress.of_call(peer)) is not None:
            with self._lock:
                self._refused.setdefault(address, self._clock.now() + _TO_HEAR_WHY)
            self._wake.set()

    def _watch(self) -> None:
        while not self._stopped:
            self._clock.wait(self._wake, _TO_HEAR_WHY / 4 if self._refused else 3600.0)
            self._wake.clear()
            if not self._stopped:
                self._close_excess()
                self._clock.sleep(_INTERVAL)

    def _close_excess(self) -> None:
        with self._lock:
            known = self._of_peer | self._refused.keys()
        files = dict(_connections(self._port))
        excess = self._excess(list(files), known - files.keys())
        for address in excess:
            with self._lock:  # either it is known to be the peer's, or its first call fails
                if address not in self._of_peer:
                    _shut_down(files[address], address, self._port)
        if excess:
            self._log.tell(
                f"closed {len(excess)} connections that are not known to be the peer's",
                "excess",
            )

    def _excess(
        self, addresses: list[RemoteAddress], ended: set[RemoteAddress]
    ) -> list[RemoteAddress]:
        """Decide which of the present connections to close; forget those that have ended."""
        present, now = set(addresses), self._clock.now()
        self._seen = {each: None for each in (*self._seen, *addresses) if each in present}
        with self._lock:
            self._of_peer -= ended
            for each in ended & self._refused.keys():
                del self._refused[each]
            closed = [each for each, at in self._refused.items() if at <= now and each in present]
            others = [each for each in self._seen if each not in {*self._of_peer, *closed}]
        per_host = Counter(address.host for address in others)
        for _ in range(len(others) - self._others):
            host = max(per_host, key=lambda host: per_host[host])
            per_host[host] -= 1
            oldest = next(address for address in others if address.host == host)
            others.remove(oldest)
            closed.append(oldest)
        return closed


def _connections(port: int) -> Iterator[tuple[RemoteAddress, int]]:
    """The connections of this process to one of its own ports, with their file descriptors."""
    for entry in _OPEN_FILES.iterdir():
        with suppress(OSError):  # not a socket, not connected, or closed meanwhile
            address = _remote_address(int(entry.name), port)
            if address is not None:
                yield address, int(entry.name)


def _remote_address(file: int, port: int) -> RemoteAddress | None:
    """The other end of a connection to `port`; None for any other socket."""
    view = socket.socket(fileno=file)
    try:
        if view.family not in (socket.AF_INET, socket.AF_INET6) or view.getsockname()[1] != port:
            return None
        return RemoteAddress.of(*view.getpeername()[:2])
    finally:
        view.detach()  # gRPC owns it


def _shut_down(file: int, address: RemoteAddress, port: int) -> None:
    """Shut a connection down; gRPC then closes it."""
    with suppress(OSError):  # it has ended, or no file can be opened now
        copy = os.dup(file)  # from here on, another connection cannot get this number
        with closing(socket.socket(fileno=copy)) as own:
            if _remote_address(copy, port) == address:
                own.shutdown(socket.SHUT_RDWR)
