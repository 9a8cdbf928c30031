from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import InternalError, ProtocolViolation
from florist.common.groups.curve25519 import LOW_ORDER, ORDER, PRIME, clamped, has_clamped_form
from florist.common.groups.group import Exponent
from florist.common.storage.id_column import IdColumn
from tests.unit.groups.oracles import elements_of, is_on_curve, numbers_of, times

if TYPE_CHECKING:
    from florist.common.groups.group import Group

exponents = st.integers(1, ORDER - 1).filter(has_clamped_form).map(Exponent)


@given(exponents)
def test_the_clamped_form_is_the_same_exponent_up_to_sign(exponent: Exponent) -> None:
    scalar = int.from_bytes(clamped(exponent), "little")
    assert scalar % 8 == 0
    assert scalar >> 254 == 1
    assert scalar % ORDER in (exponent, ORDER - exponent)


def test_exponents_without_a_clamped_form_are_rejected() -> None:
    # k = 8·e with e in [2^252, q): neither e nor q - e has bit 251 as its highest.
    for eighth in (2**252, ORDER - 1, 1, ORDER - 2**252):
        exponent = Exponent(8 * eighth % ORDER)
        assert not has_clamped_form(exponent)
        with pytest.raises(InternalError, match="no clamped form"):
            clamped(exponent)


@settings(max_examples=20, deadline=None)
@given(exponents, exponents)
def test_power_is_the_ladder_and_products_compose(
    x25519: Group, first: Exponent, second: Exponent
) -> None:
    # Points of the prime-order subgroup: 9 and a multiple of it.
    points = [9, times(12345, 9)]
    powers = x25519.power(elements_of(*points), first)
    assert numbers_of(powers) == [times(first, u) for u in points]
    both = x25519.product(first, second)
    if has_clamped_form(both):
        np.testing.assert_array_equal(
            x25519.power(powers, second), x25519.power(elements_of(*points), both)
        )


def test_a_component_of_low_order_has_no_effect(x25519: Group) -> None:
    hashed = x25519.hash_ids(IdColumn.from_bytes([b"%d" % i for i in range(64)]))
    cleared = elements_of(*(times(8, u) for u in numbers_of(hashed)))
    exponent, eighth = x25519.random_exponent(), Exponent(pow(8, -1, ORDER))
    # The map reaches points outside the subgroup, where ORDER does not act as 0.
    assert any(times(ORDER, u) != 0 for u in numbers_of(hashed))
    np.testing.assert_array_equal(
        x25519.power(hashed, exponent), x25519.power(cleared, x25519.product(exponent, eighth))
    )


@pytest.mark.parametrize("low", LOW_ORDER)
def test_low_order_points_are_an_error(x25519: Group, low: int) -> None:
    with pytest.raises(ProtocolViolation, match=r"^1 of 3 elements are of low order$"):
        x25519.power(elements_of(9, low, 9), x25519.random_exponent())


def test_low_order_is_complete() -> None:
    assert {u for u in LOW_ORDER if times(8, u) == 0} == set(LOW_ORDER)
    assert [is_on_curve(u) for u in LOW_ORDER[1:]] == [True] * 3
    # Eight points: the neutral element, (0, 0), and two for each of the other three.
    assert len(set(LOW_ORDER)) == 4
    assert not is_on_curve(PRIME - 1)


def test_a_wrong_shape_is_an_internal_error(x25519: Group) -> None:
    for bad in (np.zeros(32, np.uint8), np.zeros((2, 31), np.uint8), np.zeros((2, 32), np.int8)):
        with pytest.raises(InternalError):
            x25519.power(bad, x25519.random_exponent())  # type: ignore[arg-type]


def test_exponents_are_uniform_enough(x25519: Group) -> None:
    drawn = [x25519.random_exponent() for _ in range(200)]
    assert len(set(drawn)) == 200
    assert all(1 <= exponent < ORDER for exponent in drawn)
    # Both halves of the range, each with probability 1/2.
    assert 50 < sum(exponent > ORDER // 2 for exponent in drawn) < 150
