"""The prime-order group ristretto255 of RFC 9496, in plain big-integer arithmetic.

Elements have one valid encoding of 32 bytes each, and there is no cofactor: whatever `decode`
accepts is an element of the group of prime order. This is fast enough for some hundred
multiplications per run; `ristretto255_arrays` computes the same for whole arrays. The sequence of
operations does not depend on scalars, but the time of the big-integer operations may; every scalar
is used once per run.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Self

import gmpy2  # type: ignore[import-untyped]

ENCODED_BYTES = 32
UNIFORM_BYTES = 64
ORDER = 2**252 + 27742317777372353535851937790883648493

_P = gmpy2.mpz(2**255 - 19)
#: -x² + y² = 1 + D·x²·y²
_D = -121665 * gmpy2.invert(121666, _P) % _P
# The square roots have the signs of RFC 9496, section 4.1.
_SQRT_M1 = 19681161376707505956807079304988542015446066515923890162744021073123829784752
_SQRT_AD_MINUS_ONE = 25063068953384623474111414158702152701244531502492656460079210482610430750235
_INVSQRT_A_MINUS_D = 54469307008909316920995813868745141605393597292927456921205312896311721017578
_ONE_MINUS_D_SQUARED = (1 - _D * _D) % _P
_D_MINUS_ONE_SQUARED = (_D - 1) ** 2 % _P

#: Scalars are processed in digits of this many bits, of which `_DIGITS` cover 256 bits.
_DIGIT_BITS = 4
_DIGITS = 64


class Element(NamedTuple):
    """An element, as a point of edwards25519 in extended coordinates: x = X/Z, y = Y/Z, xy = T/Z.

    Several points represent the same element: compare encodings, not tuples.
    """

    x: int
    y: int
    z: int
    t: int

    @classmethod
    def decode(cls, encoded: bytes) -> Self | None:
        """Return the element with this encoding; None if it is not the encoding of an element."""
        s = int.from_bytes(encoded, "little")
        if len(encoded) != ENCODED_BYTES or s >= _P or s & 1:
            return None
        u1, u2 = (1 - s * s) % _P, (1 + s * s) % _P
        v = (-_D * u1 * u1 - u2 * u2) % _P
        was_square, inverse_root = _sqrt_ratio(1, v * u2 * u2 % _P)
        den_x = inverse_root * u2 % _P
        x = _absolute(2 * s * den_x % _P)
        y = u1 * inverse_root * den_x * v % _P
        t = x * y % _P
        return None if not was_square or t & 1 or y == 0 else cls(x, y, gmpy2.mpz(1), t)

    @classmethod
    def from_uniform(cls, uniform: bytes) -> Self:
        """Map 64 uniform bytes to a uniform element: the element derivation of the RFC."""
        if len(uniform) != UNIFORM_BYTES:
            raise ValueError(f"{len(uniform)} bytes, not {UNIFORM_BYTES}")
        return cls(*_mapped(uniform[:32]).plus(_mapped(uniform[32:])))

    def encode(self) -> bytes:
        """Return the element's only encoding."""
        x, y, z, t = self
        u1, u2 = (z + y) * (z - y) % _P, x * y % _P
        _, inverse_root = _sqrt_ratio(1, u1 * u2 * u2 % _P)
        den1, den2 = inverse_root * u1 % _P, inverse_root * u2 % _P
        z_inverse = den1 * den2 * t % _P
        if t * z_inverse % _P & 1:
            x, y = y * _SQRT_M1 % _P, x * _SQRT_M1 % _P
            den2 = den1 * _INVSQRT_A_MINUS_D % _P
        if x * z_inverse % _P & 1:
            y = -y
        return int(_absolute(den2 * (z - y) % _P)).to_bytes(ENCODED_BYTES, "little")

    def is_identity(self) -> bool:
        """Whether this is the neutral element."""
        return self.x == 0 or self.y == 0

    def plus(self, other: Element) -> Element:
        """Return the sum; the formula is complete, so that no pair of elements is special."""
        a = (self.y - self.x) * (other.y - other.x) % _P
        b = (self.y + self.x) * (other.y + other.x) % _P
        c = 2 * _D * self.t * other.t % _P
        d = 2 * self.z * other.z % _P
        e, f, g, h = b - a, d - c, d + c, b + a
        return Element(e * f % _P, g * h % _P, f * g % _P, e * h % _P)

    def minus(self, other: Element) -> Element:
        """Return the difference."""
        return self.plus(Element(-other.x, other.y, other.z, -other.t))

    def doubled(self) -> Element:
        """Return twice the element."""
        a, b = self.x * self.x % _P, self.y * self.y % _P
        e = (self.x + self.y) ** 2 - a - b
        g, h = b - a, -a - b
        f = g - 2 * self.z * self.z
        return Element(e * f % _P, g * h % _P, f * g % _P, e * h % _P)

    def times(self, scalar: int) -> Element:
        """Multiply by a scalar of at most 256 bits."""
        multiples = _multiples(self)
        result = IDENTITY
        for digit in reversed(_digits(scalar)):
            result = result.doubled().doubled().doubled().doubled().plus(multiples[digit])
        return result


IDENTITY = Element(gmpy2.mpz(0), gmpy2.mpz(1), gmpy2.mpz(1), gmpy2.mpz(0))


def times_generator(scalar: int) -> Element:
    """Multiply the generator by a scalar of at most 256 bits, with a table of its multiples."""
    result = IDENTITY
    for multiples, digit in zip(_generator_table(), _digits(scalar), strict=True):
        result = result.plus(multiples[digit])
    return result


@cache
def _generator_table() -> list[list[Element]]:
    """Row i has the multiples of 16^i times the generator."""
    generator = Element.decode(
        bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")
    )
    assert generator is not None
    rows, base = [], Element(*generator)
    for _ in range(_DIGITS):
        rows.append(_multiples(base))
        base = rows[-1][8].doubled()
    return rows


def _multiples(element: Element) -> list[Element]:
    """Return 0 to 15 times the element."""
    multiples = [IDENTITY]
    for _ in range(2**_DIGIT_BITS - 1):
        multiples.append(multiples[-1].plus(element))
    return multiples


def _digits(scalar: int) -> list[int]:
    """Return the 64 digits of a scalar in base 16, the lowest first."""
    return [
        digit
        for byte in scalar.to_bytes(_DIGITS * _DIGIT_BITS // 8, "little")
        for digit in (byte & 15, byte >> 4)
    ]


def _absolute(number: int) -> int:
    """Return the one of ±number that is even, which the RFC calls non-negative."""
    return _P - number if number & 1 else number


def _sqrt_ratio(u: int, v: int) -> tuple[bool, int]:
    """Compute SQRT_RATIO_M1 of the RFC: whether u/v is a square, and the root of it or of i·u/v."""
    v3 = v * v * v % _P
    root = u * v3 * gmpy2.powmod(u * v3 * v3 * v, (_P - 5) // 8, _P) % _P
    check = v * root * root % _P
    correct, flipped = check == u % _P, check == -u % _P
    if flipped or check == -u * _SQRT_M1 % _P:
        root = root * _SQRT_M1 % _P
    return bool(correct or flipped), _absolute(root)


def _mapped(uniform: bytes) -> Element:
    """Compute MAP of the RFC on 32 bytes, whose highest bit is ignored."""
    t = (int.from_bytes(uniform, "little") & 2**255 - 1) % _P
    r = _SQRT_M1 * t * t % _P
    u = (r + 1) * _ONE_MINUS_D_SQUARED % _P
    v = (-1 - r * _D) * (r + _D) % _P
    was_square, s = _sqrt_ratio(u, v)
    if was_square:
        c = gmpy2.mpz(-1)
    else:
        s, c = -_absolute(s * t % _P), r
    n = (c * (r - 1) * _D_MINUS_ONE_SQUARED - v) % _P
    w0, w1, w2, w3 = 2 * s * v, n * _SQRT_AD_MINUS_ONE, 1 - s * s, 1 + s * s
    return Element(w0 * w3 % _P, w2 * w1 % _P, w1 * w3 % _P, w0 * w2 % _P)
