"""`florist supervise`: starts a party again after failures that a restart can resolve."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.errors import ConfigurationError, restart_helps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.core.clock import Clock

log = logging.getLogger("florist.supervise")

STOPS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often and how soon a party is started again; times in seconds."""

    most: int = 20
    first_delay: float = 1.0
    longest_delay: float = 60.0
    #: A party that ran for so long starts counting afresh.
    calm: float = 600.0

    def delay(self, restart: int) -> float:
        """Return the wait before a restart, counted from 1; it doubles each time."""
        return min(self.longest_delay, self.first_delay * 2.0 ** (restart - 1))


def supervise(
    command: Sequence[str], restarts: Restarts | None = None, clock: Clock = SYSTEM_CLOCK
) -> int:
    """Run a command until it ends for good; return its last exit code.

    A command that was killed by signal N counts as ended with exit code 128 + N. Must be called in
    the main thread of a program that has no other children.

    Raises:
        ConfigurationError: the command cannot be started.
    """
    restarts = restarts or Restarts()
    done = 0
    with _signals_held():
        while True:
            started = clock.now()
            code, stopped = _run(command)
            if stopped or code == 0:
                return code
            if not restart_helps(code):
                log.error(
                    "the party ended with exit code %d; it is not started again: a restart "
                    "does not help",
                    code,
                )
                return code
            done = 1 if clock.now() - started >= restarts.calm else done + 1
            if done > restarts.most:
                log.error(
                    "the party ended with exit code %d after %d restarts; giving up",
                    code,
                    restarts.most,
                )
                return code
            delay = restarts.delay(done)
            log.warning(
                "the party ended with exit code %d; starting it again in %g s (restart %d of %d)",
                code,
                delay,
                done,
                restarts.most,
            )
            if _stopped_within(delay):
                return code


def _run(command: Sequence[str]) -> tuple[int, bool]:
    """Run the command once; return its exit code, and whether we were told to stop meanwhile."""
    try:
        child = os.posix_spawnp(command[0], [*command], os.environ, setsigmask=())
    except OSError as error:
        raise ConfigurationError(f"{command[0]}: cannot be started: {error.strerror}") from None
    stopped = False
    while True:
        number = signal.sigwait({signal.SIGCHLD, *STOPS})
        if number in STOPS:
            stopped = True
            os.kill(child, number)  # it has not been waited for, so its ID is still its own
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else 128 - code), stopped


def _stopped_within(seconds: float) -> bool:
    return signal.sigtimedwait(STOPS, seconds) is not None


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back until they are waited for, so that none is missed between two waits."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *STOPS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
