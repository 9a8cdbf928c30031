"""Rates, and the time that is left for a step."""

from __future__ import annotations

import pytest

from florist.common.core.pace import Rate, StepPace, time_left_text
from tests.support.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_rate_is_averaged_over_the_last_seconds(clock: FakeClock) -> None:
    rate = Rate(clock)
    for per_second in (1000, 10):  # fast at first, then slow for longer than the window
        for _ in range(120):
            clock.advance(0.1)
            rate.add(per_second // 10)
    assert rate.count == 12 * 1000 + 12 * 10
    assert rate.per_second() == pytest.approx(10, rel=0.1)


def test_a_rate_falls_when_nothing_is_added(clock: FakeClock) -> None:
    rate = Rate(clock)
    for _ in range(100):
        clock.advance(0.1)
        rate.add(10)
    before = rate.per_second()
    clock.advance(20)
    assert before == pytest.approx(100, rel=0.1)
    assert rate.per_second() < before / 10


def test_a_rate_is_zero_at_first(clock: FakeClock) -> None:
    rate = Rate(clock)
    rate.add(1_000_000)
    assert rate.per_second() == 0.0


def test_the_time_left_follows_from_the_recent_speed(clock: FakeClock) -> None:
    pace = StepPace(clock)
    assert pace.seconds_left() is None, "neither the total nor the speed is known"
    pace.expect(10_000)
    for per_second in (100, 10):  # fast for two minutes, then slow for longer than the window
        for _ in range(120):
            clock.advance(1)
            pace.advance(per_second)
    assert (pace.done, pace.total) == (13_200, 10_000)
    assert pace.seconds_left() == 0.0, "more was done than expected"
    pace.expect(13_800)
    assert pace.seconds_left() == pytest.approx(60, rel=0.1)


def test_there_is_no_estimate_without_a_speed_or_a_total(clock: FakeClock) -> None:
    pace = StepPace(clock)
    pace.expect(100)
    clock.advance(10)
    assert pace.seconds_left() is None, "nothing was done yet"
    pace.advance(50)
    assert pace.seconds_left() == pytest.approx(10)
    unknown = StepPace(clock)
    clock.advance(10)
    unknown.advance(50)
    assert unknown.seconds_left() is None


def test_one_long_chunk_does_not_end_the_estimate(clock: FakeClock) -> None:
    pace = StepPace(clock)
    pace.expect(300)
    for _ in range(2):
        clock.advance(90)  # longer than the window
        pace.advance(100)
    assert pace.seconds_left() == pytest.approx(90)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")],
)
def test_times_have_the_units_that_matter(seconds: float, text: str) -> None:
    assert time_left_text(seconds) == text
