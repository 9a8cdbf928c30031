"""Keeps work under way while the results of earlier work are being used."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

S = TypeVar("S")
T = TypeVar("T")


class Prefetched(Generic[T]):
    """The results of what `begin` begins with each item, in the items' order.

    Up to `limit` are under way or wait to be taken, from the start on. A thread of the stream's own
    takes the items, so a result that is there is never kept back by an item that has yet to come.
    What the items raise, and what the work raises, is raised in its place, and ends the stream.

    The thread ends with the items, and when the stream is closed or dropped: at once, or, if it
    waits for an item, as soon as that comes or fails.
    """

    def __init__(self, items: Iterable[S], begin: Callable[[S], Future[T]], limit: int) -> None:
        # The thread knows nothing of this object: so it can be dropped.
        self._line: _Line[T] = _Line(Semaphore(limit))
        Thread(
            target=_take, args=(items, begin, self._line), name="taking-ahead", daemon=True
        ).start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        future = None if self._line.closed else self._line.under_way.get()
        if future is None:
            self.close()
            raise StopIteration
        try:
            result = future.result()
        except BaseException:
            self.close()
            raise
        self._line.room.release()
        return result

    def close(self) -> None:
        """Begin nothing more; give up what has not begun."""
        self._line.closed = True
        self._line.room.release()
        while not self._line.under_way.empty():
            if (future := self._line.under_way.get()) is not None:
                future.cancel()

    def __del__(self) -> None:
        self.close()


def prefetched(items: Iterable[T], limit: int) -> Prefetched[T]:
    """The items themselves, up to `limit` of them taken before they are wanted."""
    return Prefetched(items, _done, limit)


@dataclass(slots=True)
class _Line(Generic[T]):
    """What a stream and its thread share."""

    room: Semaphore
    #: In order; None after the last.
    under_way: SimpleQueue[Future[T] | None] = field(default_factory=SimpleQueue)
    closed: bool = False


def _take(items: Iterable[S], begin: Callable[[S], Future[T]], line: _Line[T]) -> None:
    try:
        source = iter(items)
        while line.room.acquire() and not line.closed:
            try:
                item = next(source)
            except StopIteration:
                line.under_way.put(None)
                return
            line.under_way.put(begin(item))
    except BaseException as error:  # noqa: BLE001 - whoever takes the results is told
        line.under_way.put(_failed(error))


def _done(item: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(item)
    return future


def _failed(error: BaseException) -> Future[T]:
    future: Future[T] = Future()
    future.set_exception(error)
    return future
