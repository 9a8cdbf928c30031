"""How long-running work reports its progress.

Steps are named after the steps of the protocol. Their work is counted in units that both parties
know, such as exponentiations, so that progress reveals nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class StepProgress(Protocol):
    """The progress of one step."""

    def expect(self, total: int) -> None:
        """Set the total amount of work, once it is known."""
        ...

    def advance(self, done: int) -> None:
        """Report that `done` more units of work are complete."""
        ...


class Progress(Protocol):
    """Receives the progress of all steps; safe to use from several threads."""

    def step(self, title: str) -> AbstractContextManager[StepProgress]:
        """Report a step that lasts as long as the block."""
        ...


class NoProgress:
    """Ignores all progress."""

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:  # noqa: ARG002 - ignored
        yield self

    def expect(self, total: int) -> None:
        """Ignore the total."""

    def advance(self, done: int) -> None:
        """Ignore the work done."""


class CountedProgress:
    """Forwards all progress, and also counts the work done, for the heartbeats."""

    def __init__(self, inner: Progress, count: Callable[[int], None]) -> None:
        self._inner = inner
        self._count = count

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        with self._inner.step(title) as inner:
            yield _CountedStep(inner, self._count)


class _CountedStep:
    def __init__(self, inner: StepProgress, count: Callable[[int], None]) -> None:
        self._inner = inner
        self._count = count

    def expect(self, total: int) -> None:
        self._inner.expect(total)

    def advance(self, done: int) -> None:
        self._count(done)
        self._inner.advance(done)
