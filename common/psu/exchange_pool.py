"""Runs exchanges side by side: each in a thread of its own, on a channel of its own."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from florist.common.core.errors import as_florist_error
from florist.common.psu.exchanges import ExchangeRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from florist.common.core.progress import Progress, StepProgress
    from florist.common.psu.exchanges import Exchange
    from florist.common.psu.union_work import UnionWork
    from florist.common.transport.channel import Link

log = logging.getLogger("florist.align")

T = TypeVar("T")

#: Algorithm 1 has five exchanges, and all may be under way at once.
MAX_LANES = 5


class ExchangePool:
    """A context in which exchanges run at the same time. The first failure ends them all.

    Leaving it waits for every one, and raises what ended one that nobody asked for.
    """

    def __init__(self, link: Link, work: UnionWork, progress: Progress, table: str) -> None:
        """`table` tells the channels of several unions over one link apart."""
        self._link = link
        self._work = work
        self._progress = progress
        self._table = table
        self._threads = ThreadPoolExecutor(MAX_LANES, thread_name_prefix="lane")
        self._started: list[Future[Any]] = []

    def start(self, exchange: Exchange, work: Callable[[ExchangeRun], T]) -> Future[T]:
        """Run `work` on the exchange's own lane; its outcome is the future's.

        An exchange that both parties have done before is not done again.
        """
        if exchange.out not in self._work.done:
            self._started.append(future := self._threads.submit(self._run, exchange, work))
            return future
        log.info("%s: done before", exchange.title)
        done: Future[T] = Future()
        done.set_result(cast("T", self._work.journal.outcome(exchange.out)))
        return done

    def _run(self, exchange: Exchange, work: Callable[[ExchangeRun], T]) -> T:
        try:
            with self._progress.step(exchange.title) as progress:
                lane = ExchangeRun(
                    exchange,
                    self._link.channel(f"{self._table}.{exchange.channel}"),
                    self._work,
                    _Watched(self._link, progress),
                )
                return work(lane)
        except BaseException as error:
            self._link.fail(as_florist_error(error))  # the other lanes raise it too
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
            for future in self._started:
                future.result()


@dataclass(frozen=True, slots=True)
class _Watched:
    """Progress that notices, between two chunks, that the link has failed."""

    link: Link
    inner: StepProgress

    def expect(self, total: int) -> None:
        self.inner.expect(total)

    def advance(self, done: int) -> None:
        self.inner.advance(done)
        if self.link.failure is not None:
            raise self.link.failure
