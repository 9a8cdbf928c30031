"""Rows per minute and slots: what is allowed, what is refused, and when to try again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.active_party.row_budget import RowBudget
from florist.common.transport.refusal import RefusalReason, RequestRefused
from florist.common.transport.slots import Slots
from tests.support.clocks import FakeClock


def test_the_rows_of_one_minute_are_available_at_once() -> None:
    clock = FakeClock()
    budget = RowBudget(600, clock)
    budget.demand(600)
    with pytest.raises(
        RequestRefused, match=r"600 rows per minute: try again in 0\.5 s"
    ) as refused:
        budget.demand(5)
    assert refused.value.why is RefusalReason.OVER_LIMIT
    assert refused.value.retry_after == pytest.approx(0.5)
    clock.advance(0.5)
    budget.demand(5)


def test_more_than_a_minutes_rows_are_never_allowed() -> None:
    budget = RowBudget(10, FakeClock())
    assert budget.take(11) == float("inf")
    with pytest.raises(RequestRefused, match="a request for 11 exceeds it") as refused:
        budget.demand(11)
    assert refused.value.retry_after is None


@given(
    per_minute=st.integers(1, 1000),
    asks=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 300)), max_size=60),
)
def test_the_total_never_exceeds_the_rate_plus_one_minute(
    per_minute: int, asks: list[tuple[float, int]]
) -> None:
    """At any time, the total since the start is at most the rate plus one minute's rows."""
    clock = FakeClock()
    budget = RowBudget(per_minute, clock)
    start, given_rows = clock.now(), 0
    for pause, rows in asks:
        clock.advance(pause)
        wait = budget.take(rows)
        if not wait:
            given_rows += rows
        elif wait != float("inf"):
            clock.advance(wait * 1.000001)
            assert budget.take(rows) == 0, "available after the reported time"
            given_rows += rows
        allowed = per_minute * (1 + (clock.now() - start) / 60)
        assert given_rows <= allowed * 1.000001


def test_slots_are_counted_and_released() -> None:
    slots = Slots(3, "streams")
    everyone = Barrier(4)

    def hold(number: int) -> str:
        try:
            with slots.one():
                everyone.wait(5)  # all three are taken
                everyone.wait(5)  # and stay so until the fourth has been refused
                return f"held {number}"
        except RequestRefused as refused:
            return refused.reason

    with ThreadPoolExecutor(3) as pool:
        holders = [pool.submit(hold, number) for number in range(3)]
        everyone.wait(5)
        with pytest.raises(RequestRefused, match="the limit is 3 concurrent streams"), slots.one():
            pass
        everyone.wait(5)
        assert {holder.result() for holder in holders} == {"held 0", "held 1", "held 2"}
    assert slots.taken == 0
