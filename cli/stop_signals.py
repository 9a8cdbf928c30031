"""Raises `KeyboardInterrupt` for Ctrl-C and SIGTERM, wherever the main thread waits.

Python runs signal handlers in the main thread, between two instructions. A signal that arrives just
before that thread starts to wait for a lock does not wake it, so on a busy machine the party would
continue. Therefore another thread watches for signals and interrupts the main thread until it has
handled them.
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

#: Interrupts a wait and has no other effect; it is ignored by default.
_WAKE_UP = signal.SIGURG

#: Seconds before the main thread is interrupted, and between attempts.
_GRACE = 0.1


@contextmanager
def stop_signals() -> Iterator[None]:
    """Raise `KeyboardInterrupt` in the main thread soon after a stop signal, while in the context.

    It is not an `Exception`, so that no handler of failures catches it.
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
                    signal.pthread_kill(main, _WAKE_UP)
                taken.clear()

    incoming, outgoing = socket.socketpair()
    outgoing.setblocking(False)
    before = {each: signal.signal(each, stop) for each in STOPS}
    before[_WAKE_UP] = signal.signal(_WAKE_UP, ignore)
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
