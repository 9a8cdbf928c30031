"""Only the worker can open a sealed job, and only the driver its answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.cluster.sealed_jobs import Job, KeyExchange, Kind, SealedSession, UnsealError


def both_ends() -> tuple[SealedSession, SealedSession]:
    driver, worker = KeyExchange(), KeyExchange()
    return driver.as_driver(worker.public), worker.as_worker(driver.public)


@given(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(), st.integers(0, 2**3072))
def test_a_job_is_decoded_as_it_was_encoded(
    kind: Kind, number: int, payload: bytes, exponent: int
) -> None:
    job = Job(kind, number, [payload], exponent)
    assert Job.from_bytes(job.to_bytes()) == job


def test_both_ways() -> None:
    driver, worker = both_ends()
    asked = driver.seal(b"a job")
    assert worker.open(asked) == b"a job"
    assert driver.open(worker.seal(b"an answer", answers=asked), answers=asked) == b"an answer"


def test_the_same_bytes_are_sealed_differently_each_time() -> None:
    driver, _ = both_ends()
    assert driver.seal(b"a job") != driver.seal(b"a job")


def test_nobody_else_can_open_it() -> None:
    driver, worker = both_ends()
    _, restarted = both_ends()
    asked = driver.seal(b"a job")
    for other in (restarted, driver):
        with pytest.raises(UnsealError):
            other.open(asked)
    assert worker.open(asked) == b"a job"


@given(st.integers(0, 31), st.integers(0, 7))
def test_a_changed_bit_is_detected(index: int, bit: int) -> None:
    driver, worker = both_ends()
    sealed = bytearray(driver.seal(b"abcd"))
    assert len(sealed) == 32
    sealed[index] ^= 1 << bit
    with pytest.raises(UnsealError):
        worker.open(bytes(sealed))


@pytest.mark.parametrize("short", [b"", b"x" * 11, b"x" * 12, b"x" * 27])
def test_truncated_bytes_are_refused(short: bytes) -> None:
    _, worker = both_ends()
    with pytest.raises(UnsealError):
        worker.open(short)


def test_an_answer_belongs_to_one_job() -> None:
    driver, worker = both_ends()
    first, second = driver.seal(b"a job"), driver.seal(b"a job")
    with pytest.raises(UnsealError):
        driver.open(worker.seal(b"an answer", answers=first), answers=second)


def test_the_repr_of_a_job_has_no_secrets() -> None:
    shown = repr(Job(Kind.RAISE, 32, [b"payload"], 123456789))
    assert "payload" not in shown
    assert "123456789" not in shown
