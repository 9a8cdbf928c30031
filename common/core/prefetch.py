"""Start work on the next items while the results of earlier ones are being used."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Semaphore, Thread, current_thread
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from florist.common.core.exit_order import end_before_exit

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
        thread = Thread(
            target=_read_items, args=(items, begin, self._shared), name="prefetch", daemon=True
        )
        self._shared.threads.append(thread)
        end_before_exit(self._shared)
        thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        future = None if self._shared.closed else self._shared.results.get()
        if future is None:
            self.close()
            self._join()
            raise StopIteration
        try:
            result = future.result()
        except BaseException:
            self.close()
            raise
        self._shared.free_slots.release()
        return result

    def _join(self) -> None:
        """Wait for the thread, which has read all items, so that it has released them."""
        for thread in self._shared.threads:
            if thread is not current_thread():  # it may be the one that deletes this object
                thread.join()

    def close(self) -> None:
        """Start nothing more, and cancel work that has not started."""
        self._shared.tell_to_end()
        while not self._shared.results.empty():
            if (future := self._shared.results.get()) is not None:
                future.cancel()

    def __del__(self) -> None:
        self.close()


def prefetched(items: Iterable[T], limit: int) -> Prefetched[T]:
    """Iterate over the items, reading up to `limit` of them before they are needed."""
    return Prefetched(items, _done, limit)


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Shared(Generic[T]):
    """The state that an iterator shares with its thread."""

    free_slots: Semaphore
    #: In order; None after the last one.
    results: SimpleQueue[Future[T] | None] = field(default_factory=SimpleQueue)
    closed: bool = False
    #: The thread.
    threads: list[Thread] = field(default_factory=list)

    def tell_to_end(self) -> None:
        self.closed = True
        self.free_slots.release()


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
