"""The progress and traffic of several branches, merged."""

from __future__ import annotations

import pytest

from florist.common.cluster.branch_messages import (
    BranchStatus,
)
from florist.common.cluster.branch_progress import MergedProgress, RecordedProgress
from florist.common.core.progress import NoProgress
from florist.common.transport.channel import Traffic
from tests.support.shown_progress import Shown


def status(progress: RecordedProgress, sent: int = 0, received: int = 0) -> BranchStatus:
    return BranchStatus(steps=progress.snapshot(), sent=sent, received=received)


def test_traffic_of_branches_counts_as_the_partys() -> None:
    traffic, branch = Traffic(sent=5, received=7), RecordedProgress()
    for before in (0, 30):  # two unions in succession
        with MergedProgress(NoProgress(), traffic) as merged:
            merged.show([status(branch, 10, 1), status(branch)])
            assert (traffic.all_sent, traffic.all_received) == (15 + before, 8 + before)
            merged.show([status(branch, 10, 10), status(branch, 20, 20)])
            assert (traffic.all_sent, traffic.all_received) == (35 + before, 37 + before)
    assert (traffic.sent, traffic.received) == (5, 7)


def test_steps_of_several_branches_are_merged() -> None:
    shown, first, second = Shown(), RecordedProgress(), RecordedProgress()
    with MergedProgress(shown, Traffic()) as merged:
        with first.step("step 3") as own:
            own.expect(10)
            own.advance(4)
            merged.show([status(first), status(second)])
            with second.step("step 3") as other:
                other.expect(8)
                other.advance(8)
            merged.show([status(first), status(second)])
            own.advance(6)
        merged.show([status(first), status(second)])
        merged.show([status(first), status(second)])
    assert shown.lines == [
        "step 3 begins",
        "of 10",
        "+4",
        "of 18",
        "+8",
        "+6",
        "step 3 ends",
    ]


def test_a_failed_step_is_not_shown_as_complete() -> None:
    shown, only = Shown(), RecordedProgress()
    with pytest.raises(RuntimeError), MergedProgress(shown, Traffic()) as merged:  # noqa: PT012 - raised inside the block
        with pytest.raises(ValueError, match="no"), only.step("step 3"):
            raise ValueError("no")
        merged.show([status(only)])
        raise RuntimeError
    assert shown.lines == ["step 3 begins"]
