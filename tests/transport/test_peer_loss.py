"""A killed or frozen peer is detected within seconds, whatever this side waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import PeerLost
from florist.common.transport.grpc_dialer import dial
from florist.common.transport.messages import Heartbeat, SetChunk, Step
from tests.support.certificates import ACTIVE, PASSIVE
from tests.support.links import PATIENCE, free_address, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.transport.channel import Channel, Link
    from florist.common.transport.credentials import Credentials

SCRIPT = Path(__file__).with_name("peer_process.py")


@contextmanager
def peer(
    how: str, address: str, peer_name: str, files: Credentials
) -> Iterator[subprocess.Popen[str]]:
    """The other party as a process."""
    paths = [str(files.authority), str(files.certificate), str(files.key)]
    command = [sys.executable, str(SCRIPT), how, address, peer_name, *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def linked_process(
    side: str, active: Credentials, passive: Credentials
) -> Iterator[tuple[Link, subprocess.Popen[str]]]:
    """This party's link to another process; `side` is that of this party."""
    if side == "listening":
        with (
            listening(active) as (listener, address),
            peer("dial", address, ACTIVE, passive) as process,
        ):
            yield listener.accept(PATIENCE), process
        return
    address = free_address()
    with peer("listen", address, PASSIVE, active) as process:
        link = dial(address, passive, ACTIVE, PATIENCE)
        yield link, process
        link.close()


def wait_for_message(channel: Channel) -> None:
    channel.receive(Heartbeat)


def wait_for_room(channel: Channel) -> None:
    while True:
        channel.send(SetChunk(Step.SECOND_ROUND, 0, b"x" * 1_000_000))


def lost(link: Link, channel: Channel, calls: list[Callable[[Channel], None]]) -> None:
    """Every call, while it waits, is told that the peer is lost; closing then takes no time."""
    with ThreadPoolExecutor(2) as threads:
        for call in [threads.submit(call, channel) for call in calls]:
            assert isinstance(call.exception(PATIENCE), PeerLost)
    assert isinstance(link.failure, PeerLost)
    start = time.monotonic()
    link.close()
    assert time.monotonic() - start < 4


@pytest.mark.parametrize(
    ("how", "limit", "calls"),
    [
        (signal.SIGKILL, 5, [wait_for_message, wait_for_room]),
        (signal.SIGSTOP, 12, [wait_for_message]),
    ],
)
def test_a_lost_peer_is_noticed_on_either_side(
    how: signal.Signals,
    limit: float,
    calls: list[Callable[[Channel], None]],
    active: Credentials,
    passive: Credentials,
) -> None:
    with (
        linked_process("listening", active, passive) as (accepted, dialler),
        linked_process("dialing", active, passive) as (dialed, listener),
        ThreadPoolExecutor(2) as threads,
    ):
        channels = [link.channel("lane", PATIENCE) for link in (accepted, dialed)]
        waiting = [
            threads.submit(lost, link, channel, calls)
            for link, channel in zip((accepted, dialed), channels, strict=True)
        ]
        for process in (dialler, listener):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(how)
        start = time.monotonic()
        for call in waiting:
            call.result(PATIENCE)
        assert time.monotonic() - start < limit
