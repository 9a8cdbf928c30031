"""A thread pool for gRPC calls whose threads do not delay the exit of the process."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING
from weakref import WeakSet

from florist.common.core.exit_order import end_before_exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")


class DaemonPool(ThreadPoolExecutor):
    """At most `threads` daemon threads, which are reused; further calls wait for a free one."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._limit = threads
        self._started = 0
        self._idle = 0
        self._ended = False
        #: None stops a thread.
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._guard = Lock()
        self._alive: WeakSet[Thread] = WeakSet()
        end_before_exit(self)

    @property
    def threads(self) -> list[Thread]:
        """The threads that have not ended."""
        return list(self._alive)

    def tell_to_end(self) -> None:
        """End each thread after its current call: the process exits, and nobody waits for more."""
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        self.shutdown()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the thread continues with the next call
                future.set_exception(error)

        with self._guard:
            if self._ended:
                self._start(run)
                return future
            if self._idle:
                self._idle -= 1
            elif self._started < self._limit:
                self._started += 1
                self._start(self._work)
            self._tasks.put(run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as inherited
        """Let each thread stop when it is idle, without waiting for it."""
        with self._guard:
            started, self._started, self._ended = self._started, 0, True
            for _ in range(started):
                self._tasks.put(None)

    def _start(self, target: Callable[[], None]) -> None:
        thread = Thread(target=target, name="florist-call", daemon=True)
        self._alive.add(thread)
        thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            with self._guard:
                self._idle += 1
