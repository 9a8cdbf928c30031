"""A stop signal reaches the main thread wherever it waits."""

from __future__ import annotations

import os
import signal
import time
from threading import Lock, Thread

import pytest

from florist.cli.stop_signals import STOPS, stop_signals


def send_soon(number: signal.Signals) -> None:
    def send() -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), number)

    Thread(target=send, daemon=True).start()


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


def test_repeated_signals_are_all_raised() -> None:
    with stop_signals():
        for _ in range(2):
            send_soon(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                wait_forever()


def test_signal_handlers_are_restored() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(each) for each in (*STOPS, signal.SIGURG)]

    before = handlers()
    with stop_signals():
        assert handlers() != before
    assert handlers() == before
    assert signal.set_wakeup_fd(-1) == -1
