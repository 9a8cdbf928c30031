"""Batches come in schedule order, each prepared while the previous one is in use."""

from __future__ import annotations

import threading
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.synthetic.membership import Membership
from florist.common.training.feed import Feed, Position
from florist.common.training.schedule import Schedule
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import numpy.typing as npt

SCHEDULE = Schedule(bytes(32), union_size=50, batch_size=8, epochs=3)


def as_list(position: Position, ranks: npt.NDArray[np.int64]) -> list[int]:
    assert ranks.dtype == np.int64
    return list(map(int, ranks))


def feed_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("feed")]


def no_thread_is_left() -> bool:
    return eventually(lambda: not feed_threads(), within=20)


# --- membership ---


@given(st.integers(1, 60))
def test_membership_knows_the_row_of_each_own_uid_and_no_other(size: int) -> None:
    shuffled = np.random.default_rng(size).permutation(size)
    ranks = shuffled[: size // 2]
    membership = Membership.of(ranks, size)
    assert membership.rows(ranks).tolist() == list(range(len(ranks)))
    assert (membership.rows(shuffled[size // 2 :]) == -1).all()


# --- the feed ---


def test_all_steps_come_in_schedule_order() -> None:
    fed = list(Feed(SCHEDULE, as_list).from_step(0))
    assert [position.step for position, _ in fed] == list(range(21))
    assert fed[8][0] == Position(epoch=1, step=8, step_in_epoch=1)
    for position, ranks in fed:
        assert ranks == SCHEDULE.batch(position.epoch, position.step_in_epoch).tolist()


@pytest.mark.parametrize("first", [0, 1, 6, 7, 13, 20])
def test_any_step_can_be_the_first(first: int) -> None:
    whole = list(Feed(SCHEDULE, as_list).from_step(0))
    assert list(Feed(SCHEDULE, as_list).from_step(first)) == whole[first:]


def test_a_complete_run_has_no_batch() -> None:
    assert list(Feed(SCHEDULE, as_list).from_step(21)) == []


def test_exactly_one_batch_is_prepared_ahead() -> None:
    prepared = [Event() for _ in range(21)]

    def prepare(position: Position, ranks: npt.NDArray[np.int64]) -> int:
        prepared[position.step].set()
        return position.step

    for position, batch in Feed(SCHEDULE, prepare).from_step(0):
        assert batch == position.step
        if position.step < 20:
            assert prepared[position.step + 1].wait(10)
        assert not any(event.is_set() for event in prepared[position.step + 2 :])


def test_an_error_in_prepare_is_raised_at_its_step() -> None:
    def prepare(position: Position, ranks: npt.NDArray[np.int64]) -> None:
        if position.step == 3:
            raise RuntimeError("no such row")

    seen: list[int] = []
    with pytest.raises(RuntimeError, match="no such row"):
        seen.extend(position.step for position, _ in Feed(SCHEDULE, prepare).from_step(0))
    assert seen == [0, 1, 2]
    assert no_thread_is_left()


def test_no_thread_is_left_behind() -> None:
    batches = Feed(SCHEDULE, as_list).from_step(0)
    next(batches)
    assert feed_threads()
    batches.close()
    assert no_thread_is_left()
    list(Feed(SCHEDULE, as_list).from_step(0))
    assert no_thread_is_left()


def test_closing_does_not_wait_for_a_batch_in_preparation() -> None:
    peer_is_lost = Event()

    def prepare(position: Position, ranks: npt.NDArray[np.int64]) -> None:
        if position.step == 1:
            assert peer_is_lost.wait(20)

    batches = Feed(SCHEDULE, prepare).from_step(0)
    next(batches)
    batches.close()
    assert feed_threads()
    peer_is_lost.set()
    assert no_thread_is_left()
