"""Prefetching: results in order, a bounded number ahead, never delayed by later items."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from threading import enumerate as threads
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.prefetch import Prefetched, prefetched
from tests.support.waiting import eventually, settled, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


def prefetching() -> int:
    """Return the number of prefetching threads."""
    return sum(thread.name == "prefetch" for thread in threads())


def all_end(before: int) -> bool:
    """Wait for the threads started since; return whether they ended."""
    return eventually(lambda: prefetching() <= before, within=10)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 8))
@settings(deadline=None, max_examples=30)
def test_results_are_in_order_whichever_finishes_first(delays: list[int], limit: int) -> None:
    def work(item: tuple[int, int]) -> int:
        time.sleep(item[1] / 1000)
        return item[0]

    with ThreadPoolExecutor(4) as pool:
        results = list(Prefetched(enumerate(delays), lambda item: pool.submit(work, item), limit))
    assert results == list(range(len(delays)))


def test_no_more_than_the_limit_is_read() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    stream = prefetched(items(), 5)
    for expected in range(3):
        assert next(stream) == expected
    assert settled(lambda: len(taken), quiet=0.1) == 3 + 5


def test_it_starts_before_the_first_result_is_requested() -> None:
    began = Event()

    def items() -> Iterator[int]:
        began.set()
        yield 1

    stream = prefetched(items(), 1)
    assert began.wait(10)
    assert list(stream) == [1]


def test_a_result_does_not_wait_for_the_next_item() -> None:
    """For example, the peer may send nothing more before it has received an answer."""
    answered = Event()

    def items() -> Iterator[int]:
        yield 1
        assert answered.wait(10)
        yield 2

    stream = prefetched(items(), 8)
    assert next(stream) == 1
    answered.set()
    assert list(stream) == [2]


def test_an_error_in_the_items_is_raised_at_its_position() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the connection broke")

    before = prefetching()
    stream = prefetched(items(), 8)
    assert next(stream) == 1
    with pytest.raises(ValueError, match="the connection broke"):
        next(stream)
    assert list(stream) == []
    assert all_end(before)


def test_an_error_in_the_work_ends_the_iteration() -> None:
    def begin(item: int) -> Future[int]:
        future: Future[int] = Future()
        if item == 2:
            future.set_exception(ValueError("no"))
        else:
            future.set_result(item)
        return future

    before = prefetching()
    stream = Prefetched(iter(range(10**9)), begin, 4)
    with pytest.raises(ValueError, match="no"):
        list(stream)
    assert list(stream) == []
    assert all_end(before)


@pytest.mark.parametrize("how", ["closed", "deleted"])
def test_the_thread_ends_with_the_iterator(how: str) -> None:
    before = prefetching()
    stream = prefetched(iter(range(10**9)), 4)
    assert next(stream) == 0
    assert prefetching() == before + 1
    if how == "closed":
        stream.close()
        assert list(stream) == []
    del stream
    assert all_end(before)


def test_work_that_has_not_started_is_cancelled() -> None:
    begun: list[Future[int]] = []

    def begin(item: int) -> Future[int]:
        begun.append(Future())
        return begun[-1]

    stream = Prefetched(range(3), begin, 3)
    wait_until(lambda: len(begun) == 3, within=10)
    stream.close()
    assert all(future.cancelled() for future in begun)
