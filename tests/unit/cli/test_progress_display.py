"""The progress that people see: on a terminal and in a log."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from rich.console import Console

from florist.cli.progress_display import BarProgress, LineProgress
from florist.common.core.pace import StepPace
from tests.support.clocks import FakeClock

if TYPE_CHECKING:
    import pytest

    from florist.common.core.progress import StepProgress

log = logging.getLogger("florist.test-progress")


def work(step: StepProgress, clock: FakeClock) -> None:
    step.expect(1000)
    for amount in (1, 100, 39):
        clock.advance(10)
        step.advance(amount)


def test_the_log_has_the_estimate_of_the_status_page(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    with (
        caplog.at_level(logging.INFO, log.name),
        LineProgress(log, 25.0, clock).step("training") as step,
    ):
        work(step, clock)
    clock = FakeClock()
    pace = StepPace(clock)
    work(pace, clock)
    started, progress, done = caplog.records
    assert started.getMessage() == "training: started"
    assert progress.getMessage() == "training: 140 of 1,000, 5/s, about 3 min 4 s left"
    assert vars(progress)["seconds_left"] == round(pace.seconds_left() or 0) == 184
    assert done.getMessage() == "training: done, 140 in 30.0 s"


def test_a_step_of_unknown_extent_has_no_estimate(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    with (
        caplog.at_level(logging.INFO, log.name),
        LineProgress(log, 5.0, clock).step("merging") as step,
    ):
        clock.advance(10)
        step.advance(40)
    assert caplog.messages[1] == "merging: 40, 4/s"
    assert "seconds_left" not in vars(caplog.records[1])


def test_bars_show_how_far_each_step_is() -> None:
    shown = io.StringIO()
    progress = BarProgress(Console(file=shown, force_terminal=True, width=120))
    with progress.step("training") as step:
        step.expect(10)
        step.advance(4)
    text = shown.getvalue()
    assert "training" in text
    assert "4/10" in text
    assert "/s" in text
