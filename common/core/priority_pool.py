"""A thread pool that runs tasks which others wait for before the rest."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from queue import PriorityQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from florist.common.core.exit_order import end_before_exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

# A lower number runs first; _STOP ends a thread after all tasks, _STOP_NOW before them.
_STOP_NOW, _HIGH, _NORMAL, _LOW, _STOP = range(-1, 4)

_priority: ContextVar[int] = ContextVar("priority", default=_NORMAL)


@contextmanager
def high_priority() -> Iterator[None]:
    """Tasks that this thread submits within the block run before normal ones."""
    with _at(_HIGH):
        yield


@contextmanager
def low_priority() -> Iterator[None]:
    """Tasks that this thread submits within the block run when no others wait."""
    with _at(_LOW):
        yield


@contextmanager
def _at(priority: int) -> Iterator[None]:
    token = _priority.set(priority)
    try:
        yield
    finally:
        _priority.reset(token)


def at_high_priority(items: Iterable[T]) -> Iterator[T]:
    """Yield the items; what is submitted to compute them has high priority.

    What the consumer submits has its own priority.
    """
    iterator = iter(items)
    while True:
        with high_priority():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def current_priority() -> int:
    """Return the priority of this thread, to submit a task on its behalf from another thread."""
    return _priority.get()


class PriorityPool:
    """A fixed number of threads; tasks of equal priority run in the order of submission.

    Running tasks are never interrupted, and no thread is idle while a task waits.
    """

    def __init__(self, threads: int, name: str) -> None:
        """Create the pool; its threads start with the first task."""
        self.threads = [
            Thread(target=self._run_tasks, name=f"{name}_{number}", daemon=True)
            for number in range(threads)
        ]
        self._waiting: PriorityQueue[_Task] = PriorityQueue()
        self._numbers = count()
        self._lock = Lock()
        self._started = self._closed = False

    def submit(self, work: Callable[[], T], priority: int | None = None) -> Future[T]:
        """Queue a task and return the future of its result.

        Args:
            work: the task.
            priority: as returned by `current_priority`; None means that of the calling thread.

        Raises:
            RuntimeError: the pool is closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if not self._started:
                self._started = True
                end_before_exit(self)
                for thread in self.threads:
                    thread.start()
            level = current_priority() if priority is None else priority
            self._waiting.put(_Task(level, next(self._numbers), future, work))
        return future

    def close(self) -> None:
        """Run all submitted tasks that are not cancelled, then end the threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in self.threads:
                self._waiting.put(_Task(_STOP, next(self._numbers)))
        if self._started:
            for thread in self.threads:
                thread.join()

    def tell_to_end(self) -> None:
        """End each thread after its current task: the process exits, and nobody waits for more."""
        for _ in self.threads:
            self._waiting.put(_Task(_STOP_NOW, next(self._numbers)))

    def _run_tasks(self) -> None:
        while (task := self._waiting.get()).work is not None:
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(task.work())
                except BaseException as error:  # noqa: BLE001 - raised again by the future
                    task.future.set_exception(error)
            del task  # Free its memory while waiting for the next one.


@dataclass(frozen=True, slots=True, order=True)
class _Task:
    priority: int
    number: int
    future: Future[Any] = field(default_factory=Future, compare=False)
    #: None ends a thread.
    work: Callable[[], Any] | None = field(default=None, compare=False)
