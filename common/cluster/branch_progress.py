"""The progress of several branches, merged into that of one party."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from florist.common.cluster.branch_messages import BranchStatus
    from florist.common.core.progress import Progress, StepProgress
    from florist.common.transport.channel import Traffic


@dataclass(slots=True)
class StepState:
    """How far a step is."""

    total: int = 0
    done: int = 0
    complete: bool = False

    def expect(self, total: int) -> None:
        self.total = total

    def advance(self, done: int) -> None:
        self.done += done


class RecordedProgress:
    """Records the progress of a branch, for its status."""

    def __init__(self) -> None:
        self._steps: dict[str, StepState] = {}
        self._lock = Lock()

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        state = StepState()
        with self._lock:
            self._steps[title] = state
        yield state
        state.complete = True

    def snapshot(self) -> dict[str, StepState]:
        """Return the steps by title."""
        with self._lock:
            return dict(self._steps)


class MergedProgress:
    """A context manager that reports the summed progress and traffic of all branches."""

    def __init__(self, progress: Progress, traffic: Traffic) -> None:
        self._progress = progress
        self._traffic = traffic
        self._sent = self._received = 0
        self._shown: dict[str, tuple[StepProgress, ExitStack, StepState]] = {}

    def show(self, statuses: Sequence[BranchStatus]) -> None:
        """Report the current status of the branches, one per branch."""
        sent = sum(each.sent for each in statuses)
        received = sum(each.received for each in statuses)
        self._traffic.count_branches(sent - self._sent, received - self._received)
        self._sent, self._received = sent, received
        self._show_steps([each.steps for each in statuses])

    def _show_steps(self, snapshots: Sequence[dict[str, StepState]]) -> None:
        for title in dict.fromkeys(title for each in snapshots for title in each):
            states = [each.get(title, StepState()) for each in snapshots]
            if title not in self._shown:
                stack = ExitStack()
                step = stack.enter_context(self._progress.step(title))
                self._shown[title] = step, stack, StepState()
            step, stack, before = self._shown[title]
            if (whole := sum(state.total for state in states)) != before.total:
                step.expect(whole)
                before.total = whole
            if more := sum(state.done for state in states) - before.done:
                step.advance(more)
                before.done += more
            if not before.complete and all(state.complete for state in states):
                before.complete = True
                stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _, stack, state in self._shown.values():
            if not state.complete:
                stack.__exit__(kind, error, trace)
