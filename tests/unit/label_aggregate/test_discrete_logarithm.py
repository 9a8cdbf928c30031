"""Small discrete logarithms, found and not found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.groups import ristretto255_arrays as arrays
from florist.common.label_aggregate import discrete_logarithm
from florist.common.label_aggregate.discrete_logarithm import MAX_BOUND, small_logarithms

if TYPE_CHECKING:
    from florist.common.groups.ristretto255_arrays import Points


def multiples(*numbers: int) -> Points:
    return arrays.multiply_base(arrays.generator(), arrays.scalars_of(np.array(numbers, np.int64)))


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("bound", [0, 1, 2, 63, 64, 65, 200])
def test_every_integer_up_to_the_bound(bound: int) -> None:
    numbers = list(range(-bound - 3, bound + 4))
    if bound == 200:
        numbers = [*numbers[::7], -200, -201, 200, 201]
    found, good = small_logarithms(multiples(*numbers), bound)
    assert good.tolist() == [abs(number) <= bound for number in numbers]
    assert found[good].tolist() == [number for number in numbers if abs(number) <= bound]
    assert not found[~good].any()


@pytest.mark.usefixtures("either")
def test_no_elements() -> None:
    found, good = small_logarithms(arrays.neutral(0), 1000)
    assert found.shape == good.shape == (0,)


@pytest.mark.parametrize("steps", [64, 100, 1000])
@pytest.mark.parametrize("count", [1, 3])
def test_ends_of_giant_steps(steps: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete_logarithm, "MAX_BABY_STEPS", steps)
    width, bound = 2 * steps + 1, 50_000
    numbers = [
        sign * (step * width + offset)
        for sign in (1, -1)
        for step in (0, 1, 2, 10)
        for offset in (-steps, -1, 0, 1, steps)
    ] + [bound, -bound]
    for start in range(0, len(numbers), count):
        part = numbers[start : start + count]
        found, good = small_logarithms(multiples(*part), bound)
        assert good.all()
        assert found.tolist() == part


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20),
    st.integers(0, 2**24),
)
def test_any_integers(numbers: list[int], bound: int) -> None:
    found, good = small_logarithms(multiples(*numbers), bound)
    assert good.tolist() == [abs(number) <= bound for number in numbers]
    assert found[good].tolist() == [number for number in numbers if abs(number) <= bound]


def test_a_large_bound() -> None:
    numbers = [2**33, -(2**33), 2**33 - 12345, 0, 17, -(2**31)]
    found, good = small_logarithms(multiples(*numbers), 2**33)
    assert good.all()
    assert found.tolist() == numbers


def test_a_match_of_ordinates_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinates of 64 bits can agree by chance; here they nearly always do."""
    real = arrays.ordinates
    monkeypatch.setattr(
        discrete_logarithm, "ordinates", lambda points: real(points) & np.uint64(0xF << 60)
    )
    numbers = list(range(-300, 300, 7))
    found, good = small_logarithms(multiples(*numbers), 0)
    assert good.tolist() == [number == 0 for number in numbers]
    assert not found.any()


@pytest.mark.parametrize("bound", [-1, MAX_BOUND + 1])
def test_bounds_out_of_range(bound: int) -> None:
    with pytest.raises(ValueError, match="a bound of"):
        small_logarithms(multiples(1), bound)
