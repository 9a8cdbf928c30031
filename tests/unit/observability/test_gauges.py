"""Stopwatches and curves."""

from __future__ import annotations

from statistics import fmean

import pytest

from florist.common.observability.gauges import Curve, Stopwatch
from tests.support.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_stopwatch_counts_overlapping_waits_once(clock: FakeClock) -> None:
    watch = Stopwatch(clock)
    with watch:
        clock.advance(1)
        with watch:
            clock.advance(2)
        clock.advance(3)
    clock.advance(10)
    assert watch.seconds == 6


def test_a_stopwatch_includes_the_current_wait(clock: FakeClock) -> None:
    watch = Stopwatch(clock)
    with watch:
        clock.advance(5)
        assert watch.seconds == 5
        clock.advance(5)
        assert watch.seconds == 10


def interval_means(values: list[float], length: int) -> list[float]:
    """Compute the means in the obvious way."""
    whole = len(values) // length * length
    return [fmean(values[start : start + length]) for start in range(0, whole, length)]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 511, 513, 1000, 5000])
@pytest.mark.parametrize("piece", [1, 7, 5000])
def test_a_curve_has_the_means_of_equal_intervals(count: int, piece: int) -> None:
    values = [float(number * number % 101) for number in range(count)]
    curve = Curve()
    for start in range(0, count, piece):
        curve.extend(values[start : start + piece])
    points = curve.points()
    assert curve.count == count
    assert len(points) <= Curve.MAX_POINTS
    if count:
        assert len(points) >= min(count, Curve.MAX_POINTS // 2)
        length = points[0][0]
        assert [end for end, _ in points] == [length * (n + 1) for n in range(len(points))]
        assert [mean for _, mean in points] == pytest.approx(interval_means(values, length))
