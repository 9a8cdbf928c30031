"""Progress for people and for log files: bars on a terminal, plain or JSON log lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

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
    from collections.abc import Iterator

    from rich.console import Console

    from florist.common.core.progress import StepProgress


class BarProgress:
    """A live bar per step, with the rate and the remaining time."""

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
            yield _BarStep(self._bars, task)
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._bars.stop()
                    for done in self._bars.task_ids:
                        self._bars.remove_task(done)


class _BarStep:
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
    """A log line at the start and end of each step, and every few seconds in between."""

    def __init__(self, log: logging.Logger, every_seconds: float = 5.0) -> None:
        self._log = log
        self._every = every_seconds

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        self._log.info("%s: started", title, extra={"event": "step-start", "step": title})
        step = _LoggedStep(self._log, title, self._every)
        yield step
        step.finish()


class _LoggedStep:
    def __init__(self, log: logging.Logger, title: str, every_seconds: float) -> None:
        self._log = log
        self._title = title
        self._every = every_seconds
        self._started = self._logged = time.monotonic()
        self._done = 0
        self._total = 0

    def expect(self, total: int) -> None:
        self._total = total

    def advance(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._logged < self._every:
            return
        self._logged = now
        rate = self._done / (now - self._started)
        remaining = max(self._total - self._done, 0) / rate
        self._log.info(
            "%s: %s of %s, %s/s, about %.0f s left",
            self._title,
            f"{self._done:,}",
            f"{self._total:,}",
            f"{rate:,.0f}",
            remaining,
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
