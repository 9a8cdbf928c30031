"""Observing a run: its progress, and what its role does with the peer.

Both are passed through every stage anyway, so a stage does not know whether it is observed.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from florist.common.stages.role import ForwardingRole
from florist.common.transport.forwarding import ForwardingChannel, ForwardingLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.audit.findings import AuditRecord
    from florist.common.bundle.bundle import Bundle
    from florist.common.core.progress import Progress, StepProgress
    from florist.common.evaluation.evaluation_data import EvaluationData
    from florist.common.evaluation.worth import Evaluated
    from florist.common.observability.gauges import Stopwatch
    from florist.common.observability.status import Status
    from florist.common.psu.union_view import UnionView
    from florist.common.psu.union_work import UnionWork
    from florist.common.settings.party_config import PartyConfig
    from florist.common.stages.role import Role
    from florist.common.training.half_setup import HalfSetup
    from florist.common.training.loop import Half, Run
    from florist.common.transport.channel import Channel, Link, M


#: The part of its stage that follows the union of a table.
_PART_AFTER = {"train": 1, "test": 2, "evaluation": 1}


class WatchedProgress:
    """Forwards progress to another one and to the status."""

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


class WatchedRole(ForwardingRole):
    """Forwards to another role; records connections, waits for the peer, and training runs."""

    def __init__(self, inner: Role, status: Status) -> None:
        super().__init__(inner)
        self._status = status

    @contextmanager
    def connect(
        self,
        config: PartyConfig,
        plaintext: bool,  # noqa: FBT001
        timeout: float,
    ) -> Iterator[Link]:
        with ExitStack() as stack:
            with self._status.awaiting_peer():
                link = stack.enter_context(super().connect(config, plaintext, timeout))
            stack.enter_context(self._status.connected(link))
            yield link

    def run_psu(self, link: Link, work: UnionWork, progress: Progress, table: str) -> UnionView:
        view = super().run_psu(_TimedLink(link, self._status.waits), work, progress, table)
        self._status.start_part(_PART_AFTER[table])
        return view

    def make_half(self, setup: HalfSetup, channel: Channel, run: Run) -> Half[Any]:
        return super().make_half(setup, TimedChannel(channel, self._status.waits), run)

    def on_run_start(self, run: Run, audit: AuditRecord | None) -> None:
        self._status.train(run, audit)

    def evaluate(
        self, bundle: Bundle, parts: EvaluationData, channel: Channel, progress: StepProgress
    ) -> Evaluated:
        timed = TimedChannel(channel, self._status.waits)
        self._status.start_part(1)  # the union may be an earlier one
        return super().evaluate(bundle, parts, timed, progress)


class TimedChannel(ForwardingChannel):
    """Forwards to another channel and measures the time spent waiting for messages."""

    def __init__(self, inner: Channel, waits: Stopwatch) -> None:
        super().__init__(inner)
        self._waits = waits

    def receive(self, expected: type[M], timeout: float | None = None) -> M:
        with self._waits:
            return super().receive(expected, timeout)


class _TimedLink(ForwardingLink):
    """Forwards to another link; its channels measure the time spent waiting for messages."""

    def __init__(self, inner: Link, waits: Stopwatch) -> None:
        super().__init__(inner)
        self._waits = waits

    def channel(self, name: str, timeout: float | None = None) -> Channel:
        return TimedChannel(super().channel(name, timeout), self._waits)
