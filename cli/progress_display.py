"""Progress for people and for log files: bars on a terminal, plain or JSON log lines elsewhere.

Speed and time left are those of `StepPace`, as on the status page.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

from florist.common.core.clock import SYSTEM_CLOCK
from florist.common.core.pace import StepPace, time_left_text

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Task

    from florist.common.core.clock import Clock
    from florist.common.core.progress import StepProgress


class BarProgress:
    """A live bar per step, with the rate and the remaining time."""

    def __init__(self, console: Console) -> None:
        self._bars = RichProgress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _PaceColumn(),
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
        pace = StepPace()
        task = self._bars.add_task(title, total=None, pace=pace)
        try:
            yield _BarStep(self._bars, task, pace)
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._bars.stop()
                    for done in self._bars.task_ids:
                        self._bars.remove_task(done)


class _PaceColumn(ProgressColumn):
    """The speed of a step and the time that is left."""

    def render(self, task: Task) -> Text:
        pace: StepPace = task.fields["pace"]
        if task.finished:
            return Text("")
        left = pace.seconds_left()
        about = "" if left is None else f", about {time_left_text(left)} left"
        return Text(f"{pace.per_second():,.0f}/s{about}")


class _BarStep:
    def __init__(self, bars: RichProgress, task: TaskID, pace: StepPace) -> None:
        self._bars = bars
        self._task = task
        self._pace = pace

    def expect(self, total: int) -> None:
        self._pace.expect(total)
        self._bars.update(self._task, total=total)

    def advance(self, done: int) -> None:
        self._pace.advance(done)
        self._bars.update(self._task, advance=done)


class LineProgress:
    """A log line at the start and end of each step, and every few seconds in between."""

    def __init__(
        self, log: logging.Logger, every_seconds: float = 5.0, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._log = log
        self._every = every_seconds
        self._clock = clock

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        self._log.info("%s: started", title, extra={"event": "step-start", "step": title})
        step = _LoggedStep(self._log, title, self._every, self._clock)
        yield step
        step.finish()


class _LoggedStep:
    def __init__(self, log: logging.Logger, title: str, every_seconds: float, clock: Clock) -> None:
        self._log = log
        self._title = title
        self._every = every_seconds
        self._clock = clock
        self._started = self._logged = clock.now()
        self._pace = StepPace(clock)

    def expect(self, total: int) -> None:
        self._pace.expect(total)

    def advance(self, done: int) -> None:
        self._pace.advance(done)
        now = self._clock.now()
        if now - self._logged < self._every:
            return
        self._logged = now
        self._report(self._pace.per_second(), self._pace.seconds_left())

    def _report(self, speed: float, left: float | None) -> None:
        done, total = self._pace.done, self._pace.total
        self._log.info(
            "%s: %s%s, %s/s%s",
            self._title,
            f"{done:,}",
            f" of {total:,}" if total else "",
            f"{speed:,.0f}",
            "" if left is None else f", about {time_left_text(left)} left",
            extra={
                "event": "progress",
                "step": self._title,
                "done": done,
                "total": total,
                "per_second": round(speed),
                **({} if left is None else {"seconds_left": round(left)}),
            },
        )

    def finish(self) -> None:
        seconds, done = self._clock.now() - self._started, self._pace.done
        self._log.info(
            "%s: done, %s in %.1f s",
            self._title,
            f"{done:,}",
            seconds,
            extra={
                "event": "step-done",
                "step": self._title,
                "done": done,
                "seconds": round(seconds, 3),
            },
        )
