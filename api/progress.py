"""Progress events for callers of the API."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.progress import StepProgress

EventKind: TypeAlias = Literal[
    "stage-started", "step-started", "step-advanced", "step-finished", "stage-finished"
]

#: Minimum number of seconds between two "step-advanced" events of a step.
INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """What has just happened in a run.

    Attributes:
        kind: "stage-started", "step-started", "step-advanced", "step-finished" or "stage-finished".
        stage: the stage under way, such as "train"; "" outside the stages of a party.
        step: the step of the stage, such as "training"; "" for events of a whole stage.
        done: units of work completed in this step.
        total: units of work in this step; None while unknown.
    """

    kind: EventKind
    stage: str
    step: str = ""
    done: int = 0
    total: int | None = None


ProgressCallback: TypeAlias = Callable[[ProgressEvent], object]


class CallbackProgress:
    """Calls a function for each step's start, advance and end. Thread-safe if the function is."""

    def __init__(self, callback: ProgressCallback, interval: float = INTERVAL) -> None:
        self._callback = callback
        self._interval = interval
        self._stage = ""

    def start_stage(self, stage: str) -> None:
        """Report that a stage starts; the following steps belong to it."""
        self._stage = stage
        self._callback(ProgressEvent("stage-started", stage))

    def finish_stage(self, stage: str) -> None:
        """Report that a stage has finished."""
        self._callback(ProgressEvent("stage-finished", stage))

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        step = _Step(self._callback, self._stage, title, self._interval)
        step.report("step-started")
        yield step
        step.report("step-finished")


class _Step:
    def __init__(self, callback: ProgressCallback, stage: str, title: str, interval: float) -> None:
        self._callback = callback
        self._stage = stage
        self._title = title
        self._interval = interval
        self._done = 0
        self._total: int | None = None
        self._reported = time.monotonic()

    def expect(self, total: int) -> None:
        self._total = total

    def advance(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._reported >= self._interval:
            self._reported = now
            self.report("step-advanced")

    def report(self, kind: EventKind) -> None:
        self._callback(ProgressEvent(kind, self._stage, self._title, self._done, self._total))
