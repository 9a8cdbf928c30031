"""Two hosts and an unreliable network on one machine, made of network namespaces.

Each party has a namespace with one interface. The other ends of the interfaces are in a third
namespace, where a process forwards frames with the delay and loss that a test sets.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import multiprocessing
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType

    from florist.common.core.roles import RoleName

ADDRESSES: dict[RoleName, str] = {"active": "10.213.7.1", "passive": "10.213.7.2"}

_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
#: Hardware checksums and segmentation, which are disabled: forwarded frames must be complete.
_OFFLOADS = {"rx": 0x15, "tx": 0x17, "sg": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def unavailable() -> str | None:
    """Return why there can be no lab on this machine, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "ip and tc (iproute2) are missing"
    name = f"florist-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode:
        return "network namespaces cannot be created on this machine"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def enter(namespace: str) -> None:
    """Move this thread, and threads that it starts, into a network namespace."""
    with open(f"/var/run/netns/{namespace}", "rb") as file:  # noqa: PTH123 - a device of its own
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


@dataclass(frozen=True)
class Quality:
    """Loss and delay of the network."""

    #: Share of frames that are lost; 1 loses all.
    loss: float = 0.0
    #: Seconds in each direction.
    delay: float = 0.0


class Lab:
    """A context manager with both hosts and their network."""

    def __init__(self) -> None:
        prefix = f"fl{os.getpid() % 100_000}"
        self.namespaces: dict[RoleName, str] = {
            "active": f"{prefix}-a",
            "passive": f"{prefix}-p",
        }
        self._middle = f"{prefix}-m"

    def cut(self) -> None:
        """Take the link down, like unplugging the cable."""
        _ip("-n", self._middle, "link", "set", "wire-a", "down")

    def restore(self) -> None:
        """Take the link up again."""
        _ip("-n", self._middle, "link", "set", "wire-a", "up")

    def set_quality(self, quality: Quality) -> None:
        """Set loss and delay."""
        self._settings.send(quality)

    def set_rate(self, rate: str | None) -> None:
        """Limit both directions, e.g. to `10mbit`; None for no limit."""
        for name in self.namespaces.values():
            if rate is None:
                _run("tc", "-n", name, "qdisc", "del", "dev", "net", "root")
            else:
                limit = ("rate", rate, "burst", "32kb", "latency", "400ms")
                _run("tc", "-n", name, "qdisc", "replace", "dev", "net", "root", "tbf", *limit)

    def __enter__(self) -> Self:
        for name in (*self.namespaces.values(), self._middle):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for role, name in self.namespaces.items():
            end = f"wire-{role[0]}"
            peer = ("peer", "name", end, "netns", self._middle)
            _ip("-n", name, "link", "add", "net", "type", "veth", *peer)
            _ip("-n", name, "addr", "add", f"{ADDRESSES[role]}/30", "dev", "net")
            _ip("-n", name, "link", "set", "net", "up")
            _ip("-n", self._middle, "link", "set", end, "up")
        spawned = multiprocessing.get_context("spawn")
        self._settings, settings = spawned.Pipe()
        names = [*self.namespaces.values()]
        arguments = (self._middle, names, settings)
        self._forwarder = spawned.Process(target=_forward, args=arguments, daemon=True)
        self._forwarder.start()
        assert self._settings.poll(30), "the network did not start"
        assert self._settings.recv() == "up"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forwarder.kill()
        self._forwarder.join()
        for name in (*self.namespaces.values(), self._middle):
            _ip("netns", "del", name)


def _forward(middle: str, others: list[str], settings: Connection) -> None:
    for name in others:
        enter(name)
        _disable_offloads("net")
    enter(middle)
    wire = _Wire(_end("wire-a"), _end("wire-p"))
    settings.send("up")
    while True:
        watched: list[socket.socket | int] = [*wire.ends, settings.fileno()]
        readable = select.select(watched, [], [], wire.pause)[0]
        if settings.fileno() in readable:
            wire.quality = settings.recv()
        for side, end in enumerate(wire.ends):
            if end in readable:
                wire.accept(side)
        wire.deliver()


def _end(name: str) -> socket.socket:
    _disable_offloads(name)
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    end.bind((name, 0))
    return end


class _Wire:
    """Forwards frames between its ends after a delay."""

    def __init__(self, *ends: socket.socket) -> None:
        self.ends = ends
        self.quality = Quality()
        self._delayed: list[tuple[float, int, int, bytes]] = []
        self._draws = random.Random(7)
        self._number = 0

    @property
    def pause(self) -> float:
        """Seconds until the next frame is due."""
        return max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else 1.0

    def accept(self, side: int) -> None:
        with suppress(OSError):  # the interface is down
            frame, (_, _, kind, *_) = self.ends[side].recvfrom(65536)
            if kind != socket.PACKET_OUTGOING and self._draws.random() >= self.quality.loss:
                self._number += 1
                due = time.monotonic() + self.quality.delay
                heapq.heappush(self._delayed, (due, self._number, side, frame))

    def deliver(self) -> None:
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            *_, side, frame = heapq.heappop(self._delayed)
            with suppress(OSError):
                self.ends[1 - side].send(frame)


def _disable_offloads(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            with suppress(OSError):  # this one cannot be disabled
                fcntl.ioctl(control, _SIOCETHTOOL, request)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)
