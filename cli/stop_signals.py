"""Ctrl-C and SIGTERM raise `KeyboardInterrupt`, once, wherever the main thread is.

Python runs signal handlers in the main thread, between two instructions. That has three weaknesses:

* At some moments the exception would do harm (see `interrupts`): then it is raised a little later.
* A signal that arrives just before the main thread starts to wait for a lock does not wake it.
* A thread that is stuck, or a long call of a library, would keep the process alive.

Therefore another thread watches for signals. It wakes the main thread until the exception has been
raised, and ends the process if that has not ended in time. All files are written so that the
process may be killed at any moment.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, NoReturn

from florist.cli.console import report_error
from florist.common.core.errors import Interrupted
from florist.common.core.interrupts import INTERRUPTS, LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)

#: Interrupts a wait and has no other effect; it is ignored by default.
_WAKE_UP = signal.SIGURG

#: Seconds between attempts to interrupt the main thread.
_INTERVAL = 0.02


#: Seconds after a signal in which another one means the same.
_AGAIN = 1.0


@contextmanager
def stop_signals(limit: float = LIMIT) -> Iterator[None]:
    """Raise `KeyboardInterrupt` in the main thread soon after a stop signal, while in the context.

    It is raised once, and is not an `Exception`, so that no handler of failures catches it. The
    process ends with the exit code of `Interrupted` if the context has not ended `limit` seconds
    after the signal (`INTERRUPTS.limit` changes that), or at once after a second signal, a second
    later or more. (Ctrl-C and a supervisor may both signal at the same time.) Contexts must not be
    nested.
    """
    INTERRUPTS.reset(limit)
    ended = Event()

    # These run in the main thread, possibly while another one of them runs: no locks.
    def stop(number: int, frame: FrameType | None) -> None:
        del number
        INTERRUPTS.request()
        INTERRUPTS.attempt(frame)

    def wake_up(number: int, frame: FrameType | None) -> None:
        del number
        INTERRUPTS.attempt(frame)

    incoming, outgoing = socket.socketpair()
    outgoing.setblocking(False)
    before = {each: signal.signal(each, stop) for each in STOPS}
    before[_WAKE_UP] = signal.signal(_WAKE_UP, wake_up)
    fd_before = signal.set_wakeup_fd(outgoing.fileno(), warn_on_full_buffer=False)
    watched = (incoming, ended, threading.get_ident())
    watcher = Thread(target=_watch, args=watched, name="stop-signals", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        INTERRUPTS.settle()
        signal.set_wakeup_fd(fd_before)
        for each, handler in before.items():
            signal.signal(each, handler)
        ended.set()
        outgoing.close()
        watcher.join()
        incoming.close()


def _watch(incoming: socket.socket, ended: Event, main: int) -> None:
    """Wait for a stop signal, and see to it that the process ends. `main` is the main thread."""
    # Signals are for the main thread, which may be waiting for them (as `supervise` does).
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    while (number := incoming.recv(1)) and number[0] not in STOPS:
        pass
    if not number:
        return  # the context has ended
    INTERRUPTS.request()
    started = time.monotonic()
    while not ended.wait(_INTERVAL):
        passed = time.monotonic() - started
        if passed > INTERRUPTS.limit:
            _end_now(f"not everything ended within {INTERRUPTS.limit:g} s")
        if _has_stop(incoming) and passed > _AGAIN:
            _end_now("at once, because of a second signal")
        if INTERRUPTS.is_due:
            signal.pthread_kill(main, _WAKE_UP)


def _has_stop(incoming: socket.socket) -> bool:
    """Whether a further stop signal has arrived."""
    with suppress(BlockingIOError):
        return any(number in STOPS for number in incoming.recv(4096, socket.MSG_DONTWAIT))
    return False


def _end_now(why: str) -> NoReturn:
    """End the process although something in it has not ended."""
    error = Interrupted(f"stopped by the operator; {why}")
    # The thread that is stuck may hold the lock of the log.
    report = Thread(target=report_error, args=(error,), daemon=True)
    report.start()
    report.join(1)
    os._exit(error.exit_code)
