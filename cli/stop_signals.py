"""Ctrl-C and SIGTERM, raised as `KeyboardInterrupt` wherever the main thread waits.

Python runs signal handlers in the main thread, between two of its instructions. A signal that comes
just before that thread begins to wait for a lock does not wake it: on a busy machine a party then
goes on as if nobody had stopped it. So a thread watches for signals and nudges the main thread
until it has taken them.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)

#: Interrupts a wait and means nothing else; by default it is ignored.
_NUDGE = signal.SIGURG

#: Seconds that the main thread has before it is nudged, again.
_GRACE = 0.1


@contextmanager
def stop_signals() -> Iterator[None]:
    """While inside, a stop signal raises `KeyboardInterrupt` in the main thread within a moment.

    `KeyboardInterrupt`, so that no `except Exception` on the way takes it for a failure.
    """
    taken = Event()
    main = threading.get_ident()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        taken.set()
        raise KeyboardInterrupt

    def ignore(number: int, frame: FrameType | None) -> None:
        del number, frame

    def watch() -> None:
        while number := incoming.recv(1):
            if number[0] in STOPS:
                while not taken.wait(_GRACE):
                    signal.pthread_kill(main, _NUDGE)
                taken.clear()

    incoming, outgoing = socket.socketpair()
    outgoing.setblocking(False)
    before = {each: signal.signal(each, stop) for each in STOPS}
    before[_NUDGE] = signal.signal(_NUDGE, ignore)
    fd_before = signal.set_wakeup_fd(outgoing.fileno(), warn_on_full_buffer=False)
    watcher = Thread(target=watch, name="stop-signals", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        for each, handler in before.items():
            signal.signal(each, handler)
        taken.set()
        outgoing.close()
        watcher.join()
        incoming.close()
