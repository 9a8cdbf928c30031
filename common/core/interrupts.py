"""Where a stop signal may raise `KeyboardInterrupt` in the main thread.

Python can raise it after almost any call. In the middle of `threading.Condition.__enter__`, for
example, the lock is taken but nobody will release it, and a thread that needs it waits for ever;
in `__del__` the exception is lost; in `subprocess.Popen` a child process is left behind. So the
handler of the signal looks at the stack and, if this is not a good moment, waits for another one.

Code that reaches a good place to stop, such as the end of a training step, says so with
`check_interrupt`, and with `postpone_interrupts` that there is none before it. Only the main thread
is ever interrupted.
"""

from __future__ import annotations

import concurrent.futures.process
import concurrent.futures.thread
import dis
import logging
import multiprocessing.process
import multiprocessing.queues
import queue
import subprocess
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import CodeType, FrameType

#: Seconds that a process has for its end after a stop signal.
LIMIT = 30.0

#: Modules that hold locks in ways that an exception at any moment would break.
_LOCKING = frozenset(
    module.__file__
    for module in (
        concurrent.futures._base,  # noqa: SLF001 - futures have no other module
        concurrent.futures.process,
        concurrent.futures.thread,
        logging,
        multiprocessing.process,
        multiprocessing.queues,
        queue,
        threading,
        weakref,
    )
)

#: Functions that must complete, together with all that they call.
_WHOLE: frozenset[CodeType] = frozenset(
    {threading.Thread.start.__code__, subprocess.Popen.__init__.__code__}
)

#: Functions of these modules in which a thread waits, and which an exception does not break.
_JOINS: frozenset[CodeType] = frozenset(
    function.__code__
    for name in ("join", "_wait_for_tstate_lock")
    if (function := getattr(threading.Thread, name, None)) is not None
)


def _lines_with(code: CodeType, name: str) -> set[int]:
    """The lines of a function that use an attribute of this name."""
    return {
        line
        for each in dis.get_instructions(code)
        if each.argval == name and each.positions and (line := each.positions.lineno)
    }


_WAIT: CodeType = threading.Condition.wait.__code__
#: The lines at which a condition's lock is released and `wait` takes care to take it again.
_WAITING_LINES = {
    line
    for line in _lines_with(_WAIT, "acquire")
    if line > max(_lines_with(_WAIT, "_release_save"))
}


class Interrupts:
    """Whether the operator has stopped this process, and whether the main thread knows."""

    def __init__(self) -> None:
        self._requested: float | None = None
        self._raised = False
        #: How many blocks that must not be interrupted the main thread is in.
        self._held = 0
        #: Seconds after a signal in which nothing is raised, except by `check`.
        self._postponed = 0.0
        #: Seconds that the process has for its end.
        self.limit = LIMIT

    def reset(self, limit: float = LIMIT) -> None:
        """Forget earlier requests: a command begins."""
        self._requested, self._raised, self.limit = None, False, limit
        self._held, self._postponed = 0, 0.0

    @property
    def is_due(self) -> bool:
        """Whether `KeyboardInterrupt` is still to be raised."""
        return self._requested is not None and not self._raised

    def request(self) -> None:
        """Note that the operator stops the process. Takes no lock: called by signal handlers."""
        if self._requested is None:
            self._requested = time.monotonic()

    def settle(self) -> None:
        """Raise nothing any more: the command has ended."""
        self._raised = True

    def attempt(self, frame: FrameType | None) -> None:
        """Raise the exception if it is due and the main thread can be interrupted in this frame."""
        if self.is_due and not self._is_held and may_interrupt(frame):
            self._raise()

    def check(self) -> None:
        """Raise the exception if it is due: this is a good place to stop."""
        if self.is_due and _in_main_thread():
            self._raise()

    def postpone(self, seconds: float) -> None:
        """Raise nothing in the first `seconds` after a signal, except by `check`."""
        if _in_main_thread():
            self._postponed = seconds

    def allow(self) -> None:
        """Interrupt the main thread again without delay."""
        if _in_main_thread():
            self._postponed = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """See `uninterrupted`."""
        step = 1 if _in_main_thread() else 0
        self._held += step
        try:
            yield
        finally:
            self._held -= step

    @property
    def _is_held(self) -> bool:
        if self._held:
            return True
        return self._requested is not None and time.monotonic() < self._requested + self._postponed

    def _raise(self) -> NoReturn:
        self._raised = True
        raise KeyboardInterrupt


#: Those of this process.
INTERRUPTS = Interrupts()


def uninterrupted() -> AbstractContextManager[None]:
    """Postpone a stop signal to the end of a short block.

    For example from the creation of a process to the moment when someone is responsible for it.
    """
    return INTERRUPTS.held()


def postpone_interrupts(seconds: float) -> None:
    """From here on, a stop signal takes effect where `check_interrupt` is called.

    Or after so many seconds, or when `allow_interrupts` is called.
    """
    INTERRUPTS.postpone(seconds)


def allow_interrupts() -> None:
    """From here on, a stop signal takes effect at once, as before `postpone_interrupts`."""
    INTERRUPTS.allow()


def check_interrupt() -> None:
    """Raise `KeyboardInterrupt` here if the operator has stopped the process."""
    INTERRUPTS.check()


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def may_interrupt(frame: FrameType | None) -> bool:
    """Whether an exception does no harm in the main thread, which is executing this frame."""
    if frame is None:
        return False
    innermost = frame.f_code
    if innermost is _WAIT:
        if frame.f_lineno not in _WAITING_LINES:
            return False
    elif innermost.co_filename in _LOCKING and innermost not in _JOINS:
        return False
    each: FrameType | None = frame
    while each is not None:
        code = each.f_code
        if code in _WHOLE or code.co_name == "__del__":
            return False
        # Libraries in native code do not expect that a part of their import fails.
        if code.co_filename.startswith("<frozen importlib"):
            return False
        each = each.f_back
    return True
