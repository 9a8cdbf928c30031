"""Replaces threads, locks, time and randomness by simulated ones while a schedule runs.

`install` has to come before the modules of FLORIST are imported, because they bind names such as
`Lock`. What it installs behaves as usual in threads that no schedule runs.
"""

from __future__ import annotations

import _thread
import concurrent.futures.thread
import gc
import os
import queue
import random
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tests.schedules.scheduler import Killed, SimulatedLock, SimulatedRLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.schedules.scheduler import Scheduler, Task

#: The wall clock at the start of each schedule.
_START = datetime.fromisoformat("2026-01-01T12:00:00+00:00")

_real_lock = _thread.allocate_lock
_real_rlock = threading.RLock
_real_start = threading.Thread.start
_real_join = threading.Thread.join
_real_is_alive = threading.Thread.is_alive
_real_current_thread = threading.current_thread
#: Stands for the threads of the simulation itself.
_some_thread = threading.Thread(name="simulation")
_real_make_pool = concurrent.futures.ThreadPoolExecutor.__init__
_real_queue = queue.SimpleQueue
_real_urandom = os.urandom
_real_monotonic = time.monotonic
_real_sleep = time.sleep


class World:
    """What the patches consult: the schedule in progress, if any."""

    scheduler: Scheduler | None = None
    #: The randomness of each party's process.
    entropy: dict[str | None, random.Random]
    #: How far each party's wall clock is ahead, in seconds.
    clock_error: dict[str | None, float]


_world = World()


def _current() -> Scheduler | None:
    """The scheduler, if the calling thread is one of its threads."""
    scheduler = _world.scheduler
    return scheduler if scheduler is not None and scheduler.current is not None else None


def _lock() -> Any:  # noqa: ANN401 - a lock of either kind
    scheduler = _current()
    return _real_lock() if scheduler is None else SimulatedLock(scheduler)


def _rlock() -> Any:  # noqa: ANN401 - likewise
    scheduler = _current()
    return _real_rlock() if scheduler is None else SimulatedRLock(scheduler)


def _simple_queue() -> Any:  # noqa: ANN401 - likewise
    return _real_queue() if _current() is None else queue._PySimpleQueue()  # type: ignore[attr-defined]


class _SimpleQueue:
    """`queue.SimpleQueue`, which is also used as a type."""

    def __new__(cls) -> Any:  # noqa: ANN401 - another class
        return _simple_queue()

    def __class_getitem__(cls, _: object) -> type[_SimpleQueue]:
        return cls


def _start(thread: threading.Thread) -> None:
    scheduler = _current()
    if scheduler is None:
        _real_start(thread)
        return
    parent = scheduler.current
    assert parent is not None

    thread._started._flag = True  # type: ignore[attr-defined]
    name = f"{parent.party or ''}:{thread.name.rstrip('0123456789-')}"
    task = scheduler.spawn(name, thread.run, parent.party)
    task.thread = thread
    thread.simulated = task  # type: ignore[attr-defined]


def _current_thread() -> threading.Thread:
    scheduler = _current()
    if scheduler is None:
        return _real_current_thread()
    assert scheduler.current is not None
    return scheduler.current.thread or _some_thread


def _join(thread: threading.Thread, timeout: float | None = None) -> None:
    task: Task | None = getattr(thread, "simulated", None)
    if task is None:
        _real_join(thread, timeout)
    elif (scheduler := _current()) is not None:
        scheduler.join(task, timeout)


def _is_alive(thread: threading.Thread) -> bool:
    task: Task | None = getattr(thread, "simulated", None)
    return _real_is_alive(thread) if task is None else not task.is_over


def _monotonic() -> float:
    scheduler = _current()
    return _real_monotonic() if scheduler is None else scheduler.now


def _sleep(seconds: float) -> None:
    scheduler = _current()
    if scheduler is None:
        _real_sleep(seconds)
    else:
        scheduler.sleep(seconds)


def _urandom(size: int) -> bytes:
    scheduler = _current()
    if scheduler is None:
        return _real_urandom(size)
    assert scheduler.current is not None
    return _world.entropy[scheduler.current.party].randbytes(size)


class SimulatedDatetime(datetime):
    """Tells the time of the calling party's wall clock."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        scheduler = _current()
        if scheduler is None:
            return datetime.now(tz)
        assert scheduler.current is not None
        error = _world.clock_error.get(scheduler.current.party, 0.0)
        return (_START + timedelta(seconds=scheduler.now + error)).astimezone(tz)


class SimulatedClock:
    """The clock that a party's stages are given."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)

    def wait_on(self, condition: threading.Condition, seconds: float | None) -> None:
        condition.wait(seconds)


class _InOrder(dict[threading.Thread, None]):
    """The threads of a pool in the order of their start, which a set does not keep."""

    def add(self, thread: threading.Thread) -> None:
        self[thread] = None


def _make_pool(
    pool: concurrent.futures.ThreadPoolExecutor,
    *arguments: Any,  # noqa: ANN401 - as it takes them
    **options: Any,  # noqa: ANN401
) -> None:
    _real_make_pool(pool, *arguments, **options)
    pool._threads = _InOrder()  # type: ignore[assignment]


def install() -> None:
    """Put the replacements in place, once, before FLORIST is imported."""
    _set(threading, Lock=_lock, _allocate_lock=_lock, RLock=_rlock, _time=_monotonic)
    _set(threading, current_thread=_current_thread)
    _set(threading.Thread, start=_start, join=_join, is_alive=_is_alive)
    _set(concurrent.futures.ThreadPoolExecutor, __init__=_make_pool)
    _set(queue, SimpleQueue=_SimpleQueue, time=_monotonic)
    _set(time, monotonic=_monotonic, sleep=_sleep)
    _set(os, urandom=_urandom)
    _set(random, _urandom=_urandom)
    _set(sys, unraisablehook=_ignore_killed)


def _ignore_killed(unraisable: sys.UnraisableHookArgs) -> None:
    """Threads of a killed process do not finish what they clean up."""
    if unraisable.exc_type is not Killed:
        sys.__unraisablehook__(unraisable)


def patch_florist() -> None:
    """Replace what the imported modules of FLORIST have bound by name. Call it after importing."""
    from florist.common.core import allocator  # noqa: PLC0415 - after `install`

    for name, module in list(sys.modules.items()):
        if name.startswith("florist.") and getattr(module, "datetime", None) is datetime:
            module.datetime = SimulatedDatetime  # type: ignore[attr-defined]
    # They concern the memory of a process that one party has to itself.
    nothing: Callable[[], int] = lambda: 0  # noqa: E731 - a name for three uses
    _set(allocator, gc=SimpleNamespace(collect=nothing, freeze=nothing, unfreeze=nothing))
    _set(allocator, _call=lambda *_: None)


@contextmanager
def simulating(scheduler: Scheduler, seed: int) -> Iterator[World]:
    """Run the threads that are started meanwhile by this scheduler."""
    parties = (None, "active", "passive")
    _world.entropy = {party: random.Random(f"{seed} {party}") for party in parties}
    _world.clock_error = dict.fromkeys(parties, 0.0)
    _world.scheduler = scheduler
    names = (f"{number:06d}" for number in count())
    before = tempfile._name_sequence  # type: ignore[attr-defined]
    _set(tempfile, _name_sequence=names)
    _set(concurrent.futures.thread, _global_shutdown_lock=SimulatedRLock(scheduler))
    # The queues lead back to the threads, so that the schedule would stay in memory.
    _set(concurrent.futures.thread, _threads_queues=WeakKeyDictionary())
    gc.disable()
    try:
        yield _world
    finally:
        _world.scheduler = None
        _set(concurrent.futures.thread, _global_shutdown_lock=_real_lock())
        _set(concurrent.futures.thread, _threads_queues=WeakKeyDictionary())
        _set(tempfile, _name_sequence=before)
        gc.enable()


def replace(target: object, name: str, value: object) -> None:
    """Replace a part of a module or class, which has to have it."""
    assert hasattr(target, name), name
    setattr(target, name, value)


def _set(target: object, **values: object) -> None:
    for name, value in values.items():
        replace(target, name, value)
