"""What goes first is taken up first; nothing is lost, and nothing is left running."""

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

from florist.common.core.priority_pool import PriorityPool, current_rank, high_priority
from florist.common.groups.parallel import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 60


@pytest.fixture
def pool() -> Iterator[PriorityPool]:
    pool = PriorityPool(1, "test")
    yield pool
    pool.close()


@given(st.lists(st.booleans(), max_size=12))
@settings(deadline=None, max_examples=50)
def test_what_goes_first_is_taken_up_first_and_all_else_in_order(first: list[bool]) -> None:
    pool, free, done = PriorityPool(1, "test"), Event(), list[int]()
    busy = pool.submit(lambda: free.wait(WAIT))
    for number, goes_first in enumerate(first):
        with high_priority() if goes_first else nullcontext():
            pool.submit(partial(done.append, number))
    free.set()
    pool.close()
    assert busy.result()
    assert done == sorted(range(len(first)), key=lambda number: not first[number])


def test_each_result_and_each_error_goes_to_who_asked(pool: PriorityPool) -> None:
    good, bad, after = pool.submit(lambda: 7), pool.submit(lambda: 1 // 0), pool.submit(lambda: 8)
    assert good.result(WAIT) == 7
    with pytest.raises(ZeroDivisionError):
        bad.result(WAIT)
    assert after.result(WAIT) == 8


def test_a_rank_can_be_given_in_another_s_name(pool: PriorityPool) -> None:
    with high_priority():
        first = current_rank()
    assert current_rank() != first
    free, done = Event(), list[str]()
    pool.submit(lambda: free.wait(WAIT))
    pool.submit(lambda: done.append("usual"))
    last = pool.submit(lambda: done.append("first"), first)
    free.set()
    last.result(WAIT)
    pool.submit(lambda: None).result(WAIT)
    assert done == ["first", "usual"]


def test_the_rank_is_this_thread_s_own() -> None:
    seen: list[int] = []
    with high_priority():
        other = threading.Thread(target=lambda: seen.append(current_rank()))
        other.start()
        other.join(WAIT)
        assert seen != [current_rank()]


def test_what_was_cancelled_is_not_done(pool: PriorityPool) -> None:
    free, done = Event(), list[int]()
    pool.submit(lambda: free.wait(WAIT))
    given_up = pool.submit(lambda: done.append(1))
    assert given_up.cancel()
    free.set()
    pool.close()
    assert done == []
    with pytest.raises(CancelledError):
        given_up.result()


def test_closing_does_what_waits_and_ends_the_threads() -> None:
    pool = PriorityPool(3, "closing")
    results = [pool.submit(partial(int, str(number))) for number in range(20)]
    pool.close()
    pool.close()
    assert [result.result(0) for result in results] == list(range(20))
    assert not [each for each in threading.enumerate() if each.name.startswith("closing")]
    with pytest.raises(RuntimeError, match="stopped"):
        pool.submit(lambda: None)


def test_a_pool_that_was_never_used_has_no_threads() -> None:
    PriorityPool(3, "unused").close()
    assert not [each for each in threading.enumerate() if each.name.startswith("unused")]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 64, 1000])
def test_slices_cover_everything_once_and_in_order(count: int, length: int) -> None:
    threads = Threads(count)
    parts = threads.map_slices(lambda start, stop: list(range(start, stop)), length, 64)
    threads.close()
    assert [number for part in parts for number in part] == list(range(length))


def test_slices_that_have_not_begun_are_left_out_after_an_error() -> None:
    threads, begun, told = Threads(1), list[int](), Event()

    def work(start: int, stop: int) -> None:
        del stop
        begun.append(start)
        if start == 0:
            raise ValueError("the first")
        told.wait(WAIT)

    with pytest.raises(ValueError, match="the first"):
        threads.map_slices(work, 800, 8)
    told.set()
    threads.close()
    assert begun in ([0], [0, 8])
