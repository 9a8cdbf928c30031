"""A stop signal reaches the main thread wherever it waits, and never leaves a lock behind."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from threading import Lock, Thread
from typing import TYPE_CHECKING

import pytest

from florist.cli.stop_signals import STOPS, stop_signals
from florist.common.core.interrupts import (
    LIMIT,
    allow_interrupts,
    check_interrupt,
    postpone_interrupts,
    uninterrupted,
)
from florist.common.training.feed import Feed
from florist.common.training.schedule import Schedule
from florist.common.transport.in_memory import linked_pair
from florist.common.transport.messages import EpochSummary

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def send_soon(number: signal.Signals) -> None:
    def send() -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), number)

    Thread(target=send, daemon=True).start()


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def wait_forever() -> None:
    lock = Lock()
    lock.acquire()
    lock.acquire()


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_that_interrupts_no_wait_is_handled(number: signal.Signals) -> None:
    """The main thread blocks the signal, so another one gets it, as just before a wait."""
    with stop_signals():
        send_soon(number)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            with pytest.raises(KeyboardInterrupt):
                wait_forever()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_the_exception_is_raised_once() -> None:
    with stop_signals():
        send_soon(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            wait_forever()
        for number in (*STOPS, signal.SIGURG):
            os.kill(os.getpid(), number)
        check_interrupt()


def test_signal_handlers_are_restored() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(each) for each in (*STOPS, signal.SIGURG)]

    before = handlers()
    with stop_signals():
        assert handlers() != before
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_block_that_must_be_whole_is_completed() -> None:
    with stop_signals():
        with uninterrupted():
            stop_this_process()
            time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt):
            wait_forever()


def test_a_postponed_signal_takes_effect_where_it_is_checked() -> None:
    with stop_signals():
        postpone_interrupts(60)
        stop_this_process()
        time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt):
            check_interrupt()


@pytest.mark.parametrize("end", ["after its time", "when allowed"])
def test_a_postponed_signal_is_not_forgotten(end: str) -> None:
    with stop_signals():
        postpone_interrupts(0.1 if end == "after its time" else 60)
        with uninterrupted():
            stop_this_process()
            if end == "when allowed":
                allow_interrupts()
        with pytest.raises(KeyboardInterrupt):
            wait_forever()


def test_a_thread_other_than_the_main_one_is_never_interrupted() -> None:
    def check() -> None:
        with uninterrupted():
            postpone_interrupts(60)
            check_interrupt()
        ended.append(True)

    ended: list[bool] = []
    with stop_signals():
        with uninterrupted():
            stop_this_process()
            thread = Thread(target=check)
            thread.start()
            thread.join()
        with pytest.raises(KeyboardInterrupt):
            wait_forever()
    assert ended == [True]


# --- in a process of its own, which a defect would leave hanging ---


def exit_code_of(child: Callable[[], None], within: float = 60) -> int | None:
    """Run a function in a fork of this process; None if it did not end in time."""
    process = os.fork()
    if process == 0:
        code = 99
        try:
            child()
            code = 0
        except BaseException:  # noqa: BLE001 - pytest shows it on failure
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def test_a_process_that_does_not_end_is_ended() -> None:
    """The main thread catches the exception and waits on."""

    def child() -> None:
        with stop_signals(limit=0.2):
            send_soon(signal.SIGTERM)
            try:
                wait_forever()
            except KeyboardInterrupt:
                wait_forever()

    assert exit_code_of(child) == 130


def test_a_second_signal_ends_the_process_at_once() -> None:
    """But not one that arrives together with the first."""

    def child() -> None:
        with stop_signals():
            send_soon(signal.SIGTERM)
            try:
                wait_forever()
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.2)
                os.kill(os.getpid(), signal.SIGTERM)
                wait_forever()

    started = time.monotonic()
    assert exit_code_of(child) == 130
    assert 1.2 < time.monotonic() - started < LIMIT


class SignalAt:
    """Raises a stop signal at the n-th moment at which Python may run its handler.

    That is at the start of a function in Python, and after the call of one in C.
    """

    def __init__(self, moment: int) -> None:
        self._left = moment

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        del arg
        if event not in {"call", "c_return"}:
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            wake_up = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(wake_up)
            os.write(wake_up, bytes([signal.SIGTERM]))
            handler = signal.getsignal(signal.SIGTERM)
            assert callable(handler)
            handler(signal.SIGTERM, frame)


def feed_for_ever(begin: Callable[[], None]) -> None:
    """What the main thread does between two training steps."""

    def prepare(*_: object) -> None:
        time.sleep(0.0005)

    schedule = Schedule(bytes(32), 100, batch_size=10, epochs=100)
    batches = Feed(schedule, prepare).from_step(0)
    next(batches)
    begin()
    for _ in batches:
        pass


def send_for_ever(begin: Callable[[], None]) -> None:
    """What the main thread does while it exchanges messages with the peer."""
    ours, theirs = linked_pair()

    def echo() -> None:
        channel = theirs.channel("training")
        while True:
            channel.send(channel.receive(EpochSummary))

    Thread(target=echo, daemon=True).start()
    channel = ours.channel("training")
    try:
        begin()
        while True:
            channel.send(EpochSummary(0, 0.0, None, None, None))
            channel.receive(EpochSummary)
    finally:
        # Another thread closes the link, as with gRPC: it must get all locks.
        closing = Thread(target=ours.close, daemon=True)
        closing.start()
        closing.join()


@pytest.mark.parametrize("work", [feed_for_ever, send_for_ever])
def test_no_moment_leaves_a_lock_behind(work: Callable[[Callable[[], None]], None]) -> None:
    def child() -> None:
        with stop_signals():
            try:
                work(lambda: sys.setprofile(SignalAt(moment)))
            except KeyboardInterrupt:
                sys.setprofile(None)

    for moment in range(1, 121):
        assert exit_code_of(child) == 0, f"moment {moment}"
