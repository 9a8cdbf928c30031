"""How far a stage is, and the time that is left."""

from __future__ import annotations

import pytest

from florist.common.observability.snapshot import TimeLeft
from florist.common.observability.stage_progress import StageProgress
from tests.support.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def running(clock: FakeClock, parts: int = 1) -> StageProgress:
    stage = StageProgress("align", clock, parts)
    stage.state = "running"
    return stage


def test_a_stage_is_nothing_before_it_starts_and_all_once_it_is_done(clock: FakeClock) -> None:
    stage = StageProgress("align", clock)
    assert stage.read().fraction == 0
    stage.state = "done"
    assert stage.read().fraction == 1


def test_the_fraction_counts_the_work_of_all_steps_and_never_falls(clock: FakeClock) -> None:
    stage = running(clock)
    with stage.step("first") as first:
        first.expect(100)
        first.advance(80)
        assert stage.read().fraction == 0.8
        with stage.step("second") as second:
            second.expect(100)
            assert stage.read().fraction == 0.8, "0.4 by now, but it does not fall"
            second.advance(90)
            assert stage.read().fraction == 0.85
        first.advance(30)  # more than expected
    assert stage.read().fraction == 0.95, "steps that are over still count"
    assert stage.rows.count == 200
    assert stage.steps() == ()


def test_parts_are_equally_long(clock: FakeClock) -> None:
    stage = running(clock, parts=2)
    with stage.step("train") as step:
        step.expect(10)
        step.advance(5)
        assert stage.read().fraction == 0.25
    stage.start_part(1)
    assert stage.read().fraction == 0.5
    with stage.step("test") as step:
        step.expect(1000)
        step.advance(500)
        assert stage.read().fraction == 0.75
    stage.start_part(1)  # after a reconnection the part starts again
    assert stage.read().fraction == 0.75
    stage.start_part(2)  # there is no third part
    assert stage.read().fraction == 0.75


def test_the_slowest_step_determines_the_time_left(clock: FakeClock) -> None:
    stage = running(clock)
    assert stage.time_left() is None
    with stage.step("quick") as quick, stage.step("slow") as slow:
        for step, done in ((quick, 90), (slow, 10)):
            step.expect(100)
            clock.advance(5)
            step.advance(done)
        left = stage.time_left()
        assert left is not None
        assert left.seconds == pytest.approx(90)
        assert not left.is_at_least
        with stage.step("of unknown extent"):
            assert stage.time_left() == TimeLeft(left.seconds, is_at_least=True)


def test_the_time_left_is_a_lower_bound_while_parts_follow(clock: FakeClock) -> None:
    stage = running(clock, parts=2)
    with stage.step("train") as step:
        step.expect(100)
        clock.advance(10)
        step.advance(50)
        assert stage.time_left() == TimeLeft(10, is_at_least=True)
        stage.start_part(1)
        assert stage.time_left() == TimeLeft(10, is_at_least=False)
