"""Start work on the next items while the results of earlier ones are being used."""

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
    """An iterator over the results of `begin(item)` for each item, in the order of the items.

    From the start, up to `limit` results are in progress or waiting to be consumed. A background
    thread reads the items, so a finished result is never held back by an item that has not arrived
    yet. An exception from the items or from the work is raised at its position and ends the
    iteration.

    The thread ends with the items, or when the iterator is closed or garbage-collected: at once,
    or, if it is waiting for an item, as soon as that item arrives or fails.
    """

    def __init__(self, items: Iterable[S], begin: Callable[[S], Future[T]], limit: int) -> None:
        # The thread holds no reference to this object, so that it can be garbage-collected.
        self._shared: _Shared[T] = _Shared(Semaphore(limit))
        Thread(
            target=_read_items, args=(items, begin, self._shared), name="prefetch", daemon=True
        ).start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        future = None if self._shared.closed else self._shared.results.get()
        if future is None:
            self.close()
            raise StopIteration
        try:
            result = future.result()
        except BaseException:
            self.close()
            raise
        self._shared.free_slots.release()
        return result

    def close(self) -> None:
        """Start nothing more, and cancel work that has not started."""
        self._shared.closed = True
        self._shared.free_slots.release()
        while not self._shared.results.empty():
            if (future := self._shared.results.get()) is not None:
                future.cancel()

    def __del__(self) -> None:
        self.close()


def prefetched(items: Iterable[T], limit: int) -> Prefetched[T]:
    """Iterate over the items, reading up to `limit` of them before they are needed."""
    return Prefetched(items, _done, limit)


@dataclass(slots=True)
class _Shared(Generic[T]):
    """The state that an iterator shares with its thread."""

    free_slots: Semaphore
    #: In order; None after the last one.
    results: SimpleQueue[Future[T] | None] = field(default_factory=SimpleQueue)
    closed: bool = False


def _read_items(items: Iterable[S], begin: Callable[[S], Future[T]], shared: _Shared[T]) -> None:
    try:
        source = iter(items)
        while shared.free_slots.acquire() and not shared.closed:
            try:
                item = next(source)
            except StopIteration:
                shared.results.put(None)
                return
            shared.results.put(begin(item))
    except BaseException as error:  # noqa: BLE001 - raised again where the results are consumed
        shared.results.put(_failed(error))


def _done(item: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(item)
    return future


def _failed(error: BaseException) -> Future[T]:
    future: Future[T] = Future()
    future.set_exception(error)
    return future
