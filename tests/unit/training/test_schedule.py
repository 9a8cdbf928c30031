"""The schedule: every UID once per epoch, the same for both parties, chosen by neither."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.errors import ProtocolViolation
from florist.common.session.nonces import check_commitment, commitment, fresh_nonce
from florist.common.training.schedule import Schedule, joint_seed

SEED = bytes(range(32))
#: Of a million UIDs, seed 00 01 … 1f, epoch 0.
FIRST_BATCH = [75799, 813052, 104281, 264845, 685809, 519759, 634472, 960161]


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 3))
def test_every_uid_comes_once_per_epoch(union_size: int, batch_size: int, epochs: int) -> None:
    schedule = Schedule(SEED, union_size, batch_size, epochs)
    assert schedule.steps == schedule.steps_per_epoch * epochs
    for epoch in range(epochs):
        batches = [schedule.batch(epoch, step) for step in range(schedule.steps_per_epoch)]
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert 1 <= len(batches[-1]) <= batch_size
        assert all(batch.dtype == np.int64 for batch in batches)
        assert sorted(np.concatenate(batches).tolist()) == list(range(union_size))


def test_any_step_can_be_computed_independently() -> None:
    whole = Schedule(SEED, 1000, 64, 4)
    in_order = {
        (epoch, step): whole.batch(epoch, step).tolist()
        for epoch in range(4)
        for step in range(whole.steps_per_epoch)
    }
    for (epoch, step), batch in reversed(in_order.items()):
        assert Schedule(SEED, 1000, 64, 4).batch(epoch, step).tolist() == batch


def test_epochs_and_seeds_differ() -> None:
    first = Schedule(SEED, 1000, 1000, 2)
    other = Schedule(bytes(32), 1000, 1000, 2)
    orders = [first.batch(0, 0), first.batch(1, 0), other.batch(0, 0), other.batch(1, 0)]
    for i, order in enumerate(orders):
        for another in orders[:i]:
            assert (order == another).mean() < 0.02


def test_the_order_comes_from_the_legacy_generator() -> None:
    words = [int.from_bytes(SEED[i : i + 4]) for i in range(0, 32, 4)]
    expected = np.random.RandomState([*words, 1]).permutation(10_000)
    assert np.array_equal(Schedule(SEED, 10_000, 10_000, 2).batch(1, 0), expected)


def test_the_order_is_the_same_in_every_release() -> None:
    batch = Schedule(SEED, 1_000_000, 8, 1).batch(0, 0)
    assert batch.tolist() == FIRST_BATCH


def test_batches_are_copies() -> None:
    schedule = Schedule(SEED, 10, 10, 1)
    schedule.batch(0, 0)[:] = 0
    assert sorted(schedule.batch(0, 0).tolist()) == list(range(10))


@pytest.mark.parametrize(("epoch", "step"), [(2, 0), (-1, 0), (0, 4), (0, -1)])
def test_a_missing_step_is_refused(epoch: int, step: int) -> None:
    with pytest.raises(IndexError, match="2 epochs of 4 steps"):
        Schedule(SEED, 10, 3, 2).batch(epoch, step)


@pytest.mark.parametrize("sizes", [(0, 3, 2), (10, 0, 2), (10, 3, -1), (10, 3, 2**32)])
def test_impossible_schedules_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"UIDs|epochs"):
        Schedule(SEED, *sizes)
    with pytest.raises(ValueError, match="32 bytes"):
        Schedule(b"short", 10, 3, 2)


def test_repr_is_short_and_equality_is_by_value() -> None:
    schedule = Schedule(SEED, 10, 3, 2)
    schedule.batch(0, 0)
    assert schedule == Schedule(SEED, 10, 3, 2)
    assert repr(schedule) == "Schedule(union_size=10, batch_size=3, epochs=2)"


def test_commitment_binds() -> None:
    nonce = fresh_nonce()
    check_commitment(nonce, commitment(nonce))
    with pytest.raises(ProtocolViolation, match="committed"):
        check_commitment(fresh_nonce(), commitment(nonce))
    with pytest.raises(ProtocolViolation, match="committed"):
        check_commitment(nonce, b"")
    with pytest.raises(ProtocolViolation, match="31 bytes"):
        check_commitment(nonce[:31], commitment(nonce))
    with pytest.raises(ValueError, match="32 bytes"):
        commitment(b"")
    assert commitment(nonce) != hashlib.sha256(nonce).digest()


def test_the_seed_depends_on_each_argument_and_their_order() -> None:
    a, b, c = (bytes([i]) * 32 for i in range(3))
    triples = [(a, b, c), (b, a, c), (a, c, b), (a, b, b), (a, a, c), (c, b, c)]
    assert len({joint_seed(*triple) for triple in triples}) == len(triples)
    assert len(joint_seed(a, b, c)) == 32
    with pytest.raises(ValueError, match="32 bytes"):
        joint_seed(a + b, b"", c)
