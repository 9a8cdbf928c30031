"""Requests that arrive while the model is busy are computed together, and none is lost."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING

import pytest
import torch

from florist.active_party.batching import Batcher
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from torch import Tensor


class Model:
    """Doubles rows; can be blocked, and records the sizes of its batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.may_go = Event()
        self.entered = Event()
        self._alone = Lock()

    def __call__(self, rows: Tensor, more: Tensor | None = None) -> Tensor:
        assert self._alone.acquire(blocking=False), "two threads in the model at once"
        try:
            self.sizes.append(len(rows))
            self.entered.set()
            assert self.may_go.wait(10)
            if bool((rows < 0).any()):
                raise ValueError("negative")
            return rows[:, 0] * 2 if more is None else rows[:, 0] * 2 + more
        finally:
            self._alone.release()


def rows(*values: float) -> Tensor:
    return torch.tensor(values)[:, None]


def wait_for_queue(batcher: Batcher, length: int) -> None:
    wait_until(lambda: len(batcher._queue) >= length, within=10, every=0.001)


def test_a_single_request_is_computed_immediately() -> None:
    model = Model()
    model.may_go.set()
    batcher = Batcher(model, 100, delay=5.0)
    start = time.monotonic()
    assert batcher(rows(1, 2)).tolist() == [2, 4]
    assert time.monotonic() - start < 2, "the delay applies only to requests that had to wait"


def test_waiting_requests_are_computed_together_and_each_gets_its_own_result() -> None:
    model = Model()
    batcher = Batcher(model, 100)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(batcher, rows(1))
        assert model.entered.wait(10)
        others = []
        for number in range(2, 7):
            others.append(pool.submit(batcher, rows(number, number + 0.5)))
            wait_for_queue(batcher, number - 1)
        model.may_go.set()
        assert first.result(10).tolist() == [2]
        assert [other.result(10).tolist() for other in others] == [
            [2 * number, 2 * number + 1] for number in range(2, 7)
        ]
    assert model.sizes == [1, 10]
    assert (batcher.batches, batcher.requests) == (2, 6)


def test_a_batch_does_not_exceed_the_maximum_size() -> None:
    model = Model()
    batcher = Batcher(model, 3)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(batcher, rows(0))]
        assert model.entered.wait(10)
        for number in range(1, 6):
            asked.append(pool.submit(batcher, rows(number, number)))
            wait_for_queue(batcher, number)
        large = pool.submit(batcher, rows(*range(10)))  # more than a batch: goes alone
        wait_for_queue(batcher, 6)
        model.may_go.set()
        assert [a.result(10).tolist() for a in asked[1:]] == [[2 * n, 2 * n] for n in range(1, 6)]
        assert large.result(10).tolist() == [2 * n for n in range(10)]
    assert model.sizes == [1, 2, 2, 2, 2, 2, 10]


def test_several_columns_stay_together() -> None:
    model = Model()
    batcher = Batcher(model, 100)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(batcher, rows(1), torch.tensor([10.0]))]
        assert model.entered.wait(10)
        for number in (2, 3):
            asked.append(pool.submit(batcher, rows(number), torch.tensor([10.0 * number])))
            wait_for_queue(batcher, number - 1)
        model.may_go.set()
        assert [a.result(10).item() for a in asked] == [12, 24, 36]
    assert model.sizes == [1, 2]


def test_an_error_fails_the_whole_batch_but_not_the_next_one() -> None:
    model = Model()
    batcher = Batcher(model, 100)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(batcher, rows(1))
        assert model.entered.wait(10)
        bad = pool.submit(batcher, rows(-1))
        wait_for_queue(batcher, 1)
        beside = pool.submit(batcher, rows(2))
        wait_for_queue(batcher, 2)
        model.may_go.set()
        assert first.result(10).tolist() == [2]
        for failed in (bad, beside):
            with pytest.raises(ValueError, match="negative"):
                failed.result(10)
    assert batcher(rows(3)).tolist() == [6]


@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_many_threads_get_their_own_results(delay: float) -> None:
    model = Model()
    model.may_go.set()
    batcher = Batcher(model, 64, delay)

    def ask(number: int) -> bool:
        values = torch.arange(number % 7 + 1.0) + number
        return torch.equal(batcher(values[:, None]), values * 2)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(600)))
    assert sum(model.sizes) == sum(number % 7 + 1 for number in range(600))
    assert max(model.sizes) <= 64
