"""The places where a run is watched: its progress, and all that its role does with the peer.

Both are handed through every stage anyway, so a stage does not know whether somebody watches.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from florist.common.transport.forwarding import ForwardingChannel, ForwardingLink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.core.progress import Progress, StepProgress
    from florist.common.evaluation.evaluation import Evaluation
    from florist.common.evaluation.parts import EvaluationParts
    from florist.common.observability.gauges import Stopwatch
    from florist.common.observability.status import Status
    from florist.common.psu.alignment import UnionView
    from florist.common.stages.role import Role
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel, Link, M


class WatchedProgress:
    """Passes everything on, and tells the status too."""

    def __init__(self, inner: Progress, status: Status) -> None:
        self._inner = inner
        self._status = status

    @contextmanager
    def step(self, title: str) -> Iterator[StepProgress]:
        with self._inner.step(title) as inner, self._status.step(title) as watched:
            yield _Both(inner, watched)


class _Both:
    def __init__(self, first: StepProgress, second: StepProgress) -> None:
        self._first = first
        self._second = second

    def expect(self, total: int) -> None:
        self._first.expect(total)
        self._second.expect(total)

    def advance(self, done: int) -> None:
        self._first.advance(done)
        self._second.advance(done)


def watched_role(role: Role, status: Status) -> Role:
    """The same role: the peer's coming and going, waits for it, and training runs are noted."""

    @contextmanager
    def connect(*how: Any) -> Iterator[Link]:  # noqa: ANN401 - as the role takes it
        with ExitStack() as stack:
            with status.awaiting_peer():
                link = stack.enter_context(role.connect(*how))
            stack.enter_context(status.connected(link))
            yield link

    def make_half() -> Callable[[HalfSetup, Channel, Run], Half[Any]]:
        make = role.make_half()

        def make_watched(setup: HalfSetup, channel: Channel, run: Run) -> Half[Any]:
            return make(setup, TimedChannel(channel, status.waits), run)

        return make_watched

    def run_psu(link: Link, *rest: Any) -> UnionView:  # noqa: ANN401 - as the role takes it
        return role.run_psu(_TimedLink(link, status.waits), *rest)

    def make_evaluator() -> Callable[
        [Any, EvaluationParts, Channel, StepProgress], Evaluation | None
    ]:
        evaluate = role.make_evaluator()
        return lambda bundle, parts, channel, step: evaluate(
            bundle, parts, TimedChannel(channel, status.waits), step
        )

    return replace(
        role,
        connect=connect,
        make_half=make_half,
        on_run_start=status.train,
        run_psu=run_psu,
        make_evaluator=make_evaluator,
    )


class TimedChannel(ForwardingChannel):
    """Another channel; the time for which we wait for its messages is taken."""

    def __init__(self, inner: Channel, waits: Stopwatch) -> None:
        super().__init__(inner)
        self._waits = waits

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        with self._waits:
            return super().receive(expected, timeout)


class _TimedLink(ForwardingLink):
    """Another link, with such channels."""

    def __init__(self, inner: Link, waits: Stopwatch) -> None:
        super().__init__(inner)
        self._waits = waits

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return TimedChannel(super().channel(name, timeout), self._waits)
