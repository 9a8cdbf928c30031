"""Runs the exchanges of a union concurrently, each in its own thread on its own channel."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from florist.common.core.errors import as_florist_error
from florist.common.psu.exchanges import ExchangeRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from florist.common.core.progress import Progress, StepProgress
    from florist.common.psu.exchanges import Exchange
    from florist.common.psu.stored_sets import StoredSet
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.align")

T = TypeVar("T")

#: No protocol has more exchanges, and all of them may be in progress at once.
MAX_EXCHANGES = 5


class ExchangePool:
    """A context manager that runs exchanges concurrently. The first failure ends them all.

    Leaving the context waits for every exchange and raises the error of any that failed.
    """

    def __init__(self, link: Link, work: UnionWork, progress: Progress, table: str) -> None:
        """`table` distinguishes the channels of several unions over one link."""
        self._link = link
        self._work = work
        self._progress = progress
        self._table = table
        self._threads = ThreadPoolExecutor(MAX_EXCHANGES, thread_name_prefix="exchange")
        self._sets: list[Future[StoredSet]] = []
        self._answers: list[Future[None]] = []

    def start(
        self, exchange: Exchange, work: Callable[[ExchangeRun], StoredSet]
    ) -> Future[StoredSet]:
        """Run `work` in a thread and return a future of the set that it stores.

        An exchange that both parties completed earlier is skipped: its stored set is returned.
        """
        if self._is_done(exchange):
            done: Future[StoredSet] = Future()
            done.set_result(self._work.journal.stored_result(exchange.out))
            return done
        future = self._threads.submit(self._run, exchange, work)
        self._sets.append(future)
        return future

    def start_answering(self, exchange: Exchange, work: Callable[[ExchangeRun], None]) -> None:
        """Run `work`, which stores nothing, in a thread, unless both parties completed it."""
        if not self._is_done(exchange):
            self._answers.append(self._threads.submit(self._run, exchange, work))

    def _is_done(self, exchange: Exchange) -> bool:
        is_done = exchange.out in self._work.done
        if is_done:
            log.info("%s: already complete", exchange.title)
        return is_done

    def _run(self, exchange: Exchange, work: Callable[[ExchangeRun], T]) -> T:
        try:
            with self._progress.step(exchange.title) as progress:
                run = ExchangeRun(
                    exchange,
                    self._link.channel(f"{self._table}.{exchange.channel}"),
                    self._work,
                    _WatchedProgress(self._link, progress),
                )
                return work(run)
        except BaseException as error:
            self._link.fail(as_florist_error(error))  # the other exchanges raise it too
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._link.fail(as_florist_error(error))
        self._threads.shutdown(wait=True)
        if error is None:
            for stored in self._sets:
                stored.result()
            for answer in self._answers:
                answer.result()


@dataclass(frozen=True, slots=True)
class _WatchedProgress:
    """Forwards progress, and raises between two chunks if the link has failed."""

    link: Link
    inner: StepProgress

    def expect(self, total: int) -> None:
        self.inner.expect(total)

    def advance(self, done: int) -> None:
        self.inner.advance(done)
        if self.link.failure is not None:
            raise self.link.failure
