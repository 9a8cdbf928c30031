"""Slow and obvious implementations, to compare the fast code with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.groups.curve25519 import PRIME, A, encode

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements


def elements_of(*numbers: int) -> Elements:
    """Encode numbers as X25519 elements, canonical or not."""
    return rows_of([encode(number) for number in numbers])


def rows_of(rows: list[bytes], width: int = 32) -> Elements:
    return np.frombuffer(bytearray().join(rows), dtype=np.uint8).reshape(-1, width)


def numbers_of(elements: Elements) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in elements]


def is_square(number: int) -> bool:
    """Whether a non-zero number is a square modulo p."""
    return pow(number, (PRIME - 1) // 2, PRIME) == 1


def is_on_curve(u: int) -> bool:
    return is_square(u**3 + A * u**2 + u)


def times(scalar: int, u: int) -> int:
    """Return the u-coordinate of `scalar` times the point: RFC 7748's ladder, for any scalar."""
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in f"{scalar:b}":
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b = (x2 + z2) ** 2, (x2 - z2) ** 2
        da, cb = (x3 - z3) * (x2 + z2), (x3 + z3) * (x2 - z2)
        e = a - b
        x2, z2 = a * b % PRIME, e * (a + (A - 2) // 4 * e) % PRIME
        x3, z3 = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, PRIME - 2, PRIME) % PRIME
