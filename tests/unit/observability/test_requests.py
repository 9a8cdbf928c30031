"""Counting requests, and the quantiles of their latencies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.observability.requests import KEPT, RequestGauge
from tests.support.clocks import FakeClock


def test_nothing_is_known_before_the_first_request() -> None:
    found = RequestGauge().read()
    assert (found.answered, found.median, found.p99, found.refused) == (0, None, None, {})


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_quantiles_are_values_that_occurred(seconds: list[float]) -> None:
    gauge = RequestGauge()
    for each in seconds:
        gauge.answered(each)
    found = gauge.read()
    assert found.median == np.quantile(seconds, 0.5, method="inverted_cdf")
    assert found.p99 == np.quantile(seconds, 0.99, method="inverted_cdf")


def test_only_the_last_requests_count_for_the_latency() -> None:
    clock = FakeClock()
    gauge = RequestGauge(clock)
    for seconds in [9.0] * 50 + [0.01] * KEPT:
        clock.advance(0.1)
        gauge.answered(seconds)
    found = gauge.read()
    assert (found.answered, found.median, found.p99) == (KEPT + 50, 0.01, 0.01)
    assert found.per_second == pytest.approx(10, rel=0.1)


def test_refusals_are_counted_by_reason() -> None:
    gauge = RequestGauge()
    for reason in ("malformed", "over the limit", "malformed"):
        gauge.refused(reason)
    assert gauge.read().refused == {"malformed": 2, "over the limit": 1}
    assert gauge.read().answered == 0
