"""Waiting for what another thread or process does."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

N = TypeVar("N", int, float)

#: How much slower than an idle machine a busy one may be. Time limits only cost when a test fails.
PATIENCE = 4.0


def eventually(condition: Callable[[], bool], within: float, every: float = 0.01) -> bool:
    """Whether the condition becomes true within this many seconds; returns as soon as it does.

    The condition is checked once in `every` seconds.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(every)
    return condition()


def wait_until(
    condition: Callable[[], bool],
    within: float,
    message: Callable[[], str] = lambda: "it did not happen in time",
    *,
    every: float = 0.01,
) -> None:
    """Wait until the condition is true; fail the test after so many seconds on an idle machine."""
    assert eventually(condition, PATIENCE * within, every), message()


def settled(value: Callable[[], N], quiet: float, *, within: float = 60, tolerance: N = 0) -> N:
    """The largest value, once it has not grown by more than `tolerance` for `quiet` seconds."""
    largest, since = value(), time.monotonic()

    def is_quiet() -> bool:
        nonlocal largest, since
        if (now := value()) > largest + tolerance:
            largest, since = now, time.monotonic()
        return time.monotonic() - since >= quiet

    wait_until(is_quiet, within)
    return largest


def wait_until_blocked(pool: ThreadPoolExecutor, calls: int, within: float = 20) -> None:
    """Wait until this many calls of the pool wait on a condition."""

    def blocked() -> bool:
        frames = sys._current_frames()
        stacks = [_codes(frames, each.ident) for each in pool._threads]
        wanted = {thread._WorkItem.run.__code__, threading.Condition.wait.__code__}
        return sum(wanted <= stack for stack in stacks) >= calls

    wait_until(blocked, within)


def _codes(frames: dict[int, FrameType], ident: int | None) -> set[CodeType]:
    """The functions on the stack of a thread."""
    frame, found = frames.get(ident or 0), set()
    while frame is not None:
        found.add(frame.f_code)
        frame = frame.f_back
    return found
