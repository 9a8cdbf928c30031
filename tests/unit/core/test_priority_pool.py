"""The priority pool: order, errors, cancelling and closing."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from contextlib import nullcontext
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.priority_pool import (
    PriorityPool,
    at_high_priority,
    current_priority,
    high_priority,
    low_priority,
)
from florist.common.groups.parallel import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

WAIT = 60


@pytest.fixture
def pool() -> Iterator[PriorityPool]:
    pool = PriorityPool(1, "test")
    yield pool
    pool.close()


LEVELS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "high": high_priority,
    "normal": nullcontext,
    "low": low_priority,
}


@given(st.lists(st.sampled_from(sorted(LEVELS)), max_size=12))
@settings(deadline=None, max_examples=50)
def test_tasks_run_by_priority_and_otherwise_in_order(levels: list[str]) -> None:
    pool, free, done = PriorityPool(1, "test"), Event(), list[int]()
    busy = pool.submit(lambda: free.wait(WAIT))
    for number, level in enumerate(levels):
        with LEVELS[level]():
            pool.submit(partial(done.append, number))
    free.set()
    pool.close()
    assert busy.result()
    order = list(LEVELS)
    assert done == sorted(range(len(levels)), key=lambda number: order.index(levels[number]))


def test_priorities_nest_and_end_with_their_blocks() -> None:
    normal = current_priority()
    with high_priority():
        high = current_priority()
        with low_priority():
            low = current_priority()
            with high_priority():
                assert current_priority() == high
            assert current_priority() == low
        assert current_priority() == high
        with pytest.raises(ZeroDivisionError), low_priority():
            1 // 0  # noqa: B018
        assert current_priority() == high
    assert current_priority() == normal
    assert high < normal < low


@pytest.mark.parametrize("own", sorted(LEVELS))
def test_items_are_computed_at_high_priority_and_consumed_at_the_own(own: str) -> None:
    computed: list[int] = []

    def items() -> Iterator[int]:
        for item in range(4):
            computed.append(current_priority())
            yield item
        computed.append(current_priority())  # whatever ends the stream is part of it too

    with high_priority():
        high = current_priority()
    with LEVELS[own]():
        before = current_priority()
        stream = at_high_priority(items())
        assert current_priority() == before
        for expected, item in enumerate(stream):
            assert item == expected
            assert current_priority() == before
        assert current_priority() == before
    assert computed == [high] * 5


def test_a_consumer_that_stops_or_fails_keeps_its_own_priority() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    with low_priority():
        before = current_priority()
        stream = at_high_priority(items())
        assert next(stream) == 1
        with pytest.raises(ValueError, match="no more"):
            next(stream)
        assert current_priority() == before
        abandoned = at_high_priority(iter([1, 2]))
        assert next(abandoned) == 1
        del abandoned
        assert current_priority() == before


def test_the_priority_of_a_stream_ends_with_its_items_if_levels_change_meanwhile() -> None:
    """The stream may be started in one block and continued in another."""
    stream = at_high_priority(iter(range(3)))
    with low_priority():
        low = current_priority()
        assert next(stream) == 0
        assert current_priority() == low
    normal = current_priority()
    assert next(stream) == 1
    assert current_priority() == normal


def test_results_and_errors_go_to_the_right_future(pool: PriorityPool) -> None:
    good, bad, after = pool.submit(lambda: 7), pool.submit(lambda: 1 // 0), pool.submit(lambda: 8)
    assert good.result(WAIT) == 7
    with pytest.raises(ZeroDivisionError):
        bad.result(WAIT)
    assert after.result(WAIT) == 8


def test_the_priority_of_another_thread(pool: PriorityPool) -> None:
    with high_priority():
        first = current_priority()
    assert current_priority() != first
    free, done = Event(), list[str]()
    pool.submit(lambda: free.wait(WAIT))
    pool.submit(lambda: done.append("normal"))
    last = pool.submit(lambda: done.append("first"), first)
    free.set()
    last.result(WAIT)
    pool.submit(lambda: None).result(WAIT)
    assert done == ["first", "normal"]


def test_the_priority_belongs_to_the_thread() -> None:
    seen: list[int] = []
    with high_priority():
        other = threading.Thread(target=lambda: seen.append(current_priority()))
        other.start()
        other.join(WAIT)
        assert seen != [current_priority()]


def test_cancelled_tasks_do_not_run(pool: PriorityPool) -> None:
    free, done = Event(), list[int]()
    pool.submit(lambda: free.wait(WAIT))
    cancelled = pool.submit(lambda: done.append(1))
    assert cancelled.cancel()
    free.set()
    pool.close()
    assert done == []
    with pytest.raises(CancelledError):
        cancelled.result()


def test_closing_runs_waiting_tasks_and_ends_the_threads() -> None:
    pool = PriorityPool(3, "closing")
    results = [pool.submit(partial(int, str(number))) for number in range(20)]
    pool.close()
    pool.close()
    assert [result.result(0) for result in results] == list(range(20))
    assert not [each for each in threading.enumerate() if each.name.startswith("closing")]
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(lambda: None)


def test_an_unused_pool_has_no_threads() -> None:
    PriorityPool(3, "unused").close()
    assert not [each for each in threading.enumerate() if each.name.startswith("unused")]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 64, 1000])
def test_slices_cover_everything_once_and_in_order(count: int, length: int) -> None:
    threads = Threads(count)
    parts = threads.map_slices(lambda start, stop: list(range(start, stop)), length, 64)
    threads.close()
    assert [number for part in parts for number in part] == list(range(length))


def test_slices_that_have_not_started_are_skipped_after_an_error() -> None:
    threads, begun, released = Threads(1), list[int](), Event()

    def work(start: int, stop: int) -> None:
        del stop
        begun.append(start)
        if start == 0:
            raise ValueError("the first")
        released.wait(WAIT)

    with pytest.raises(ValueError, match="the first"):
        threads.map_slices(work, 800, 8)
    released.set()
    threads.close()
    assert begun in ([0], [0, 8])
