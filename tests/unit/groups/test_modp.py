from __future__ import annotations

from typing import TYPE_CHECKING

import gmpy2  # type: ignore[import-untyped]
import numpy as np
import pytest

from florist.common.core.errors import ConfigurationError, InternalError, ProtocolViolation
from florist.common.groups.group import Exponent
from florist.common.groups.modp import PRIMES, ModpGroup
from florist.common.storage.id_column import IdColumn
from tests.unit.groups.oracles import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.storage.elements import Elements


@pytest.fixture(scope="module", params=PRIMES)
def group(request: pytest.FixtureRequest) -> Iterator[ModpGroup]:
    group = ModpGroup(request.param, threads=2)
    yield group
    group.close()


def encoded(group: ModpGroup, *numbers: int) -> Elements:
    return rows_of([number.to_bytes(group.width) for number in numbers], group.width)


def numbers_of(elements: Elements) -> list[int]:
    return [int.from_bytes(row.tobytes()) for row in elements]


def pi_times_power_of_2(bits: int) -> int:
    """⌊2^bits·π⌋ by Machin's formula, π = 16·arctan(1/5) - 4·arctan(1/239), in integers."""
    guard = 64

    def arctan_of_inverse(x: int) -> int:
        power = (1 << bits + guard) // x
        total, n = 0, 0
        while power:
            total += (-1) ** n * (power // (2 * n + 1))
            power //= x * x
            n += 1
        return total

    return 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239) >> guard


@pytest.mark.parametrize(
    ("name", "offset", "end"),
    [("modp2048", 124476, 0x15728E5A8AACAA68), ("modp3072", 1690314, 0x4B82D120A93AD2CA)],
)
def test_the_primes_are_those_of_rfc_3526(name: str, offset: int, end: int) -> None:
    prime, bits = PRIMES[name], int(name[4:])
    pi = pi_times_power_of_2(bits - 130)
    assert prime == 2**bits - 2 ** (bits - 64) - 1 + 2**64 * (pi + offset)
    assert prime >> 64 & 2**64 - 1 == end
    assert prime % 2**64 == 2**64 - 1
    assert gmpy2.is_prime(prime)
    assert gmpy2.is_prime((prime - 1) // 2)


def test_power_is_pow(group: ModpGroup) -> None:
    prime = PRIMES[group.name]
    elements = group.hash_ids(IdColumn.from_bytes([b"%d" % i for i in range(10)]))
    for exponent in (Exponent(1), Exponent(2), group.random_exponent()):
        assert numbers_of(group.power(elements, exponent)) == [
            pow(x, exponent, prime) for x in numbers_of(elements)
        ]


def test_width(group: ModpGroup) -> None:
    assert group.width * 8 == int(group.name[4:])
    # Numbers with leading zeros keep their width.
    np.testing.assert_array_equal(group.power(encoded(group, 2), Exponent(2)), encoded(group, 4))


def test_empty(group: ModpGroup) -> None:
    empty = np.empty((0, group.width), np.uint8)
    group.validate(empty)
    assert group.power(empty, group.random_exponent()).shape == (0, group.width)


def test_good_elements(group: ModpGroup) -> None:
    group.validate(group.hash_ids(IdColumn.from_bytes([b"%d" % i for i in range(50)])))
    group.validate(encoded(group, 4, 9))


def test_bad_elements(group: ModpGroup) -> None:
    prime = PRIMES[group.name]
    non_residue = prime - 4  # -1 is no square modulo a prime that is 3 modulo 4
    for bad, fault in (
        (0, "not between 1 and p"),
        (1, "not between 1 and p"),
        (prime, "not between 1 and p"),
        (prime + 1, "not between 1 and p"),
        (2 ** (8 * group.width) - 1, "not between 1 and p"),
        (prime - 1, "not quadratic residues"),
        (non_residue, "not quadratic residues"),
    ):
        for elements in (encoded(group, bad, 4, 9), encoded(group, 4, 9, bad)):
            with pytest.raises(ProtocolViolation, match=f"^1 of 3 elements are {fault}$"):
                group.validate(elements)


def test_wrong_shapes(group: ModpGroup) -> None:
    for wrong in (np.zeros((2, 32), np.uint8), np.zeros(group.width, np.uint8)):
        with pytest.raises(ProtocolViolation, match=f"not an array of {group.width}-byte rows"):
            group.validate(wrong)
        with pytest.raises(InternalError):
            group.power(wrong, group.random_exponent())


def test_the_neutral_element_is_an_error(group: ModpGroup) -> None:
    with pytest.raises(ProtocolViolation, match=r"^1 of 2 elements"):
        group.power(encoded(group, 4, 1), group.random_exponent())


def test_names() -> None:
    with pytest.raises(ConfigurationError, match="choose one of: modp2048, modp3072"):
        ModpGroup("modp1024")
    with pytest.raises(ConfigurationError, match="no engine 'avx2'; choose one of: auto, gmpy2"):
        ModpGroup("modp2048", "avx2")
