"""Curve25519 by u-coordinates: constants, clamped exponents and validation of points."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import gmpy2  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from florist.common.core.errors import InternalError, ProtocolViolation
from florist.common.groups import kernels
from florist.common.storage.elements import Elements, is_array_of

if TYPE_CHECKING:
    from florist.common.groups.group import Exponent
    from florist.common.groups.parallel import Threads

#: Number of bytes of a u-coordinate, in the little-endian encoding of RFC 7748.
WIDTH = 32
PRIME = 2**255 - 19
#: v² = u³ + A·u² + u
A = 486662
#: The prime order q of the subgroup; the curve has 8·q points.
ORDER = 2**252 + 27742317777372353535851937790883648493
_INVERSE_OF_8 = pow(8, -1, ORDER)

#: The u-coordinates on the curve whose multiples by 8 are the neutral element. The points have
#: order 2, 4, 8 and 8.
LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)

#: For fewer points, testing each one is as fast, because a batch has a fixed cost at its end.
_BATCH_FROM = 256
_BATCH_LARGEST = 1 << 15
#: Random bytes for a soundness error of 2^-128 per batch: for each point, or for each eight points
#: with the kernel that processes eight at a time.
_BATCH_RANDOM = 16
_BATCH_LANES = 8


def encode(u: int) -> bytes:
    """Encode a u-coordinate."""
    return u.to_bytes(WIDTH, "little")


def right_side(u: int) -> int:
    """Compute v² from u: a non-zero square on the curve, a non-square on the twist."""
    return (u * u * u + A * u * u + u) % PRIME


def has_clamped_form(exponent: int) -> bool:
    """Whether `clamped` accepts the exponent; all but a fraction of 2^-126 have this form."""
    return _larger_eighth(exponent).bit_length() == 252


def clamped(exponent: Exponent) -> bytes:
    """Return the scalar that acts as ±`exponent` on u-coordinates and that X25519 does not change.

    X25519 silently sets the three low bits of a scalar to 0 and bit 254 to 1, so a product of
    exponents modulo q would become another scalar. But u(P) = u(-P), so the exponents k and -k have
    the same effect, and adding multiples of q changes nothing. The scalar is 8·e with e = ±k/8
    modulo q, and the larger of the two e has bit 251: it is at least q/2 > 2^251, and below 2^252
    for all but 2^-126 of the exponents. `random_exponent` never draws those; a product that is one
    of them ends the run, which will not happen in practice.
    """
    eighth = _larger_eighth(exponent)
    if eighth.bit_length() != 252:
        raise InternalError("an exponent has no clamped form (probability 2^-126)")
    return encode(8 * eighth)


def _larger_eighth(exponent: int) -> int:
    eighth = exponent * _INVERSE_OF_8 % ORDER
    return max(eighth, ORDER - eighth)


def check_points(elements: Elements, threads: Threads) -> None:
    """Check that each row is a canonical u-coordinate of a point on the curve, not of low order.

    The point may still have a component of low order. Every scalar is a multiple of 8, which
    removes it.

    Raises:
        ProtocolViolation: the message says how many are invalid and why, but not which.
    """
    if not is_array_of(elements, WIDTH):
        raise ProtocolViolation(f"elements are not an array of {WIDTH}-byte rows")
    for fault, count in (
        ("not reduced modulo p", _count_not_canonical(elements)),
        ("of low order", _count_low_order(elements)),
        ("not on the curve", _count_off_curve(elements, threads)),
    ):
        if count:
            raise ProtocolViolation(f"{count} of {len(elements)} elements are {fault}")


def _words(elements: Elements) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(elements).view("<u8")


def count_neutral(elements: Elements) -> int:
    """Count the rows that are 0: X25519's result for the neutral element."""
    words = _words(elements)
    suspects = words[words[:, 0] == 0]
    return len(suspects) - int(np.count_nonzero(suspects.any(axis=1)))


def _count_not_canonical(elements: Elements) -> int:
    w0, w1, w2, w3 = _words(elements).T
    p0, p1, p2, p3 = (np.uint64(PRIME >> shift & 2**64 - 1) for shift in (0, 64, 128, 192))
    # The two middle words of p are all ones, so no word is greater.
    too_large = (w3 > p3) | ((w3 == p3) & (w2 == p2) & (w1 == p1) & (w0 >= p0))
    return int(np.count_nonzero(too_large))


def _count_low_order(elements: Elements) -> int:
    words = _words(elements)
    low = np.frombuffer(b"".join(map(encode, LOW_ORDER)), dtype="<u8").reshape(-1, 4)
    suspects = words[np.isin(words[:, 0], low[:, 0])]
    return int(np.count_nonzero((suspects[:, None] == low).all(axis=2).any(axis=1)))


def _count_off_curve(elements: Elements, threads: Threads) -> int:
    """Count the canonical encodings that are not on the curve."""
    if len(elements) >= _BATCH_FROM and _all_on_curve(elements, threads):
        return 0
    data = elements.tobytes()
    numbers = (
        int.from_bytes(data[start : start + WIDTH], "little")
        for start in range(0, len(data), WIDTH)
    )
    return sum(gmpy2.legendre(right_side(u), PRIME) != 1 for u in numbers)


def _all_on_curve(elements: Elements, threads: Threads) -> bool:
    """Run the batch test of the kernels, which invalid points pass with probability 2^-128.

    Returns False if the test fails or the kernels are missing.
    """
    native = kernels.native
    if native is None:
        return False

    check, lanes = (
        (native.on_curve_batch_ifma, _BATCH_LANES)
        if native.ifma_available()
        else (native.on_curve_batch, 1)
    )

    def test(start: int, stop: int) -> bool:
        random = os.urandom(_BATCH_RANDOM * -(-(stop - start) // lanes))
        return check(elements[start:stop], random)

    return all(threads.map_slices(test, len(elements), _BATCH_LARGEST))
