from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ProtocolViolation
from florist.common.groups import make_group
from florist.common.groups.curve25519 import LOW_ORDER, PRIME, check_points, encode
from florist.common.storage.id_column import IdColumn
from tests.unit.groups.oracles import elements_of, is_on_curve, numbers_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.groups.group import Group
    from florist.common.groups.parallel import Threads
    from florist.common.storage.elements import Elements
    from tests.unit.groups.conftest import BatchKernels

#: 2 is on the twist, 9 on the curve.
ON_TWIST = 2
ON_CURVE = 9


@pytest.fixture(scope="session")
def group() -> Iterator[Group]:
    group = make_group("x25519", threads=2)
    yield group
    group.close()


@pytest.fixture(scope="session")
def good(group: Group) -> Elements:
    return group.hash_ids(IdColumn.from_bytes([b"%d" % i for i in range(10_000)]))


def random_for(batch: BatchKernels, points: int) -> bytes:
    return os.urandom(16 * -(-points // batch.shared_by))


def test_good_points(group: Group, good: Elements) -> None:
    for count in (0, 1, 255, 256, 257, 10_000):
        group.validate(good[:count])


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (encode(ON_TWIST), "not on the curve"),
        (encode(PRIME - 1), "not on the curve"),
        *((encode(u), "of low order") for u in LOW_ORDER),
        # Other encodings of numbers below p, which X25519 itself would accept.
        *((encode(PRIME + u), "not reduced modulo p") for u in (0, 1, ON_CURVE, 18)),
        (encode(ON_CURVE + 2**255), "not reduced modulo p"),
        (b"\xff" * 32, "not reduced modulo p"),
        (bytes(31) + b"\x80", "not reduced modulo p"),
    ],
)
@pytest.mark.parametrize("count", [1, 600])
def test_one_bad_point(group: Group, good: Elements, bad: bytes, fault: str, count: int) -> None:
    for position in {0, count // 2, count - 1}:
        elements = good[:count].copy()
        elements[position] = np.frombuffer(bad, np.uint8)
        # The whole message: it reveals neither the position nor the value.
        with pytest.raises(ProtocolViolation, match=f"^1 of {count} elements are {fault}$"):
            group.validate(elements)


def test_one_twist_point_among_ten_thousand_is_always_caught(group: Group, good: Elements) -> None:
    for _ in range(10):
        elements = good.copy()
        elements[secrets.randbelow(len(elements))] = elements_of(ON_TWIST)[0]
        with pytest.raises(ProtocolViolation, match=r"^1 of 10000 elements are not on the curve$"):
            group.validate(elements)


def test_an_even_number_of_twist_points_is_counted(group: Group, good: Elements) -> None:
    elements = good.copy()
    elements[:1000:2] = elements_of(ON_TWIST)[0]
    with pytest.raises(ProtocolViolation, match=r"^500 of 10000 elements are not on the curve$"):
        group.validate(elements)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**256 - 1) | st.integers(0, 30), min_size=1, max_size=4))
def test_the_batch_agrees_with_the_definition(batch: BatchKernels, numbers: list[int]) -> None:
    expected = all(0 < u < PRIME and is_on_curve(u) for u in numbers)
    points = elements_of(*numbers)
    assert batch.on_curve(points, random_for(batch, len(points))) is expected


def test_the_batch_multiplies_by_random_subsets(batch: BatchKernels) -> None:
    """A wrong point in no random subset is not detected; with one bit set, it is."""
    points = elements_of(ON_CURVE, ON_TWIST)
    for round_ in range(16):
        for bit in range(8):
            random = bytearray(len(random_for(batch, 2)))
            assert batch.on_curve(points, random)
            random[round_ if batch.shared_by > 1 else 2 * round_ + 1] = 1 << bit
            assert not batch.on_curve(points, random)


def test_points_that_share_random_bytes_do_not_cancel(batch: BatchKernels) -> None:
    """Two wrong points in the same subsets would cancel; sharing bytes must not cause that."""
    for first in range(8):
        for second in range(first):
            points = elements_of(*[ON_CURVE] * 16)
            points[[first, second]] = elements_of(ON_TWIST)[0]
            assert not batch.on_curve(points, random_for(batch, 16))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1023, 1024, 1025, 2049])
def test_one_wrong_point_anywhere(batch: BatchKernels, good: Elements, count: int) -> None:
    assert batch.on_curve(good[:count], random_for(batch, count))
    for position in {0, count // 2, count - 1}:
        for bad in (ON_TWIST, 0, PRIME, PRIME + ON_CURVE, ON_CURVE + 2**255, 2**256 - 1):
            elements = good[:count].copy()
            elements[position] = elements_of(bad)[0]
            assert not batch.on_curve(elements, random_for(batch, count))


def test_half_of_all_numbers_are_on_the_curve(threads: Threads) -> None:
    numbers = [secrets.randbelow(PRIME) for _ in range(1000)]
    bad = sum(not is_on_curve(u) for u in numbers)
    assert 300 < bad < 700
    with pytest.raises(ProtocolViolation, match=f"^{bad} of 1000 elements"):
        check_points(elements_of(*numbers), threads)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda good: good[:, :31].copy(),
        lambda good: good.reshape(-1),
        lambda good: good.reshape(2, -1, 32),
        lambda good: good.view(np.int8),
        lambda good: good[::2],
        lambda good: good[:10].tolist(),
        lambda _: b"",
    ],
)
def test_wrong_shapes(group: Group, good: Elements, wrong: Callable[[Elements], Elements]) -> None:
    with pytest.raises(ProtocolViolation, match="not an array of 32-byte rows"):
        group.validate(wrong(good))


@pytest.mark.parametrize("lacking", ["without_kernels", "without_ifma"])
def test_on_other_machines(
    request: pytest.FixtureRequest, group: Group, good: Elements, lacking: str
) -> None:
    request.getfixturevalue(lacking)
    group.validate(good[:1000])
    elements = good[:1000].copy()
    elements[700] = elements_of(ON_TWIST)[0]
    with pytest.raises(ProtocolViolation, match=r"^1 of 1000 elements are not on the curve$"):
        group.validate(elements)


def test_powers_stay_on_the_curve(group: Group, good: Elements) -> None:
    """A hash used directly as u would be on the twist half of the time, and so would its powers."""
    exponent = group.random_exponent()
    assert all(map(is_on_curve, numbers_of(group.power(good[:50], exponent))))
    naive = rows_of([os.urandom(31) + b"\0" for _ in range(200)])
    before = [is_on_curve(u) for u in numbers_of(naive)]
    assert 50 < sum(before) < 150
    assert [is_on_curve(u) for u in numbers_of(group.power(naive, exponent))] == before
