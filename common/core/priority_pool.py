"""Threads that take up what others wait for before the rest."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from queue import PriorityQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_FIRST, _USUAL, _NEVER = range(3)

_rank: ContextVar[int] = ContextVar("rank", default=_USUAL)


@contextmanager
def high_priority() -> Iterator[None]:
    """What this thread submits meanwhile is taken up before what others submit."""
    token = _rank.set(_FIRST)
    try:
        yield
    finally:
        _rank.reset(token)


def current_rank() -> int:
    """That of this thread, for what is submitted later in its name."""
    return _rank.get()


class PriorityPool:
    """A fixed number of threads; what has the same rank is taken up in its order.

    Nothing that has begun is interrupted, and no thread is idle while anything waits.
    """

    def __init__(self, threads: int, name: str) -> None:
        """The threads start when first needed."""
        self._threads = [
            Thread(target=self._work_off, name=f"{name}_{number}", daemon=True)
            for number in range(threads)
        ]
        self._waiting: PriorityQueue[_Task] = PriorityQueue()
        self._numbers = count()
        self._lock = Lock()
        self._started = self._closed = False

    def submit(self, work: Callable[[], T], rank: int | None = None) -> Future[T]:
        """What `work` returns, once it is done.

        Args:
            work: what to do.
            rank: that of this thread if None.

        Raises:
            RuntimeError: the pool is closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads have been stopped")
            if not self._started:
                self._started = True
                for thread in self._threads:
                    thread.start()
            place = current_rank() if rank is None else rank
            self._waiting.put(_Task(place, next(self._numbers), future, work))
        return future

    def close(self) -> None:
        """Do what was submitted and not cancelled; then end the threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in self._threads:
                self._waiting.put(_Task(_NEVER, next(self._numbers)))
        if self._started:
            for thread in self._threads:
                thread.join()

    def _work_off(self) -> None:
        while (task := self._waiting.get()).work is not None:
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(task.work())
                except BaseException as error:  # noqa: BLE001 - whoever takes the result is told
                    task.future.set_exception(error)
            del task  # and what it holds, while waiting for the next


@dataclass(frozen=True, slots=True, order=True)
class _Task:
    rank: int
    number: int
    future: Future[Any] = field(default_factory=Future, compare=False)
    #: None ends a thread.
    work: Callable[[], Any] | None = field(default=None, compare=False)
