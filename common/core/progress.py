"""Long work shows itself: bars on a terminal, plain or JSON lines otherwise.

Steps are named after the protocol's and counted in exponentiations, which both parties know.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console


class StepProgress(Protocol):
    """One step under way."""

    def expect(self, total: int) -> None:
        """How much there is to do, once known."""
        ...

    def advance(self, done: int) -> None:
        """`done` more of it is done."""
        ...


class Progress(Protocol):
    """Where steps report; safe to use from several threads."""

    def step(self, title: str) -> AbstractContextManager[StepProgress]:
        """A step from its start to its end (or failure)."""
        ...


class NoProgress:
    """Reports to nobody."""

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:  # noqa: ARG002 - nobody listens
        yield self

    def expect(self, total: int) -> None:
        """Nothing to show."""

    def advance(self, done: int) -> None:
        """Nothing to show."""


class CountedProgress:
    """Passes everything on, and also counts all work done, for the heartbeats."""

    def __init__(self, inner: Progress, count: Callable[[int], None]) -> None:
        self._inner = inner
        self._count = count

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        with self._inner.step(title) as inner:
            yield _Counted(inner, self._count)


class _Counted:
    def __init__(self, inner: StepProgress, count: Callable[[int], None]) -> None:
        self._inner = inner
        self._count = count

    def expect(self, total: int) -> None:
        self._inner.expect(total)

    def advance(self, done: int) -> None:
        self._count(done)
        self._inner.advance(done)


class BarProgress:
    """A live bar per step, with rate and time left."""

    def __init__(self, console: Console) -> None:
        self._bars = RichProgress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._users = 0
        self._lock = Lock()

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._bars.start()
        task = self._bars.add_task(title, total=None, rate="")
        try:
            yield _Bar(self._bars, task)
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._bars.stop()
                    for done in self._bars.task_ids:
                        self._bars.remove_task(done)


class _Bar:
    def __init__(self, bars: RichProgress, task: TaskID) -> None:
        self._bars = bars
        self._task = task
        self._started = time.monotonic()
        self._done = 0

    def expect(self, total: int) -> None:
        self._bars.update(self._task, total=total)

    def advance(self, done: int) -> None:
        self._done += done
        rate = self._done / max(time.monotonic() - self._started, 1e-9)
        self._bars.update(self._task, advance=done, rate=f"{rate:,.0f}/s")


class LineProgress:
    """A log line when a step starts and ends, and every few seconds in between."""

    def __init__(self, log: logging.Logger, every_seconds: float = 5.0) -> None:
        self._log = log
        self._every = every_seconds

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        self._log.info("%s: started", title, extra={"event": "step-start", "step": title})
        line = _Line(self._log, title, self._every)
        yield line
        line.finish()


class _Line:
    def __init__(self, log: logging.Logger, title: str, every_seconds: float) -> None:
        self._log = log
        self._title = title
        self._every = every_seconds
        self._started = self._told = time.monotonic()
        self._done = 0
        self._total = 0

    def expect(self, total: int) -> None:
        self._total = total

    def advance(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._told < self._every:
            return
        self._told = now
        rate = self._done / (now - self._started)
        left = max(self._total - self._done, 0) / rate
        self._log.info(
            "%s: %s of %s, %s/s, about %.0f s left",
            self._title,
            f"{self._done:,}",
            f"{self._total:,}",
            f"{rate:,.0f}",
            left,
            extra={
                "event": "progress",
                "step": self._title,
                "done": self._done,
                "total": self._total,
                "per_second": round(rate),
            },
        )

    def finish(self) -> None:
        seconds = time.monotonic() - self._started
        self._log.info(
            "%s: done, %s in %.1f s",
            self._title,
            f"{self._done:,}",
            seconds,
            extra={
                "event": "step-done",
                "step": self._title,
                "done": self._done,
                "seconds": round(seconds, 3),
            },
        )
