"""Polynomials over GF(2^128) = GF(2)[x] / (x^128 + x^7 + x^2 + x + 1), evaluated for many columns.

Bit i of an element's 16 bytes, in little-endian order, is the coefficient of x^i. (GCM uses the
same field with the bits of each byte in the opposite order.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.oblivious_transfer import kernels

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray

ELEMENT_BYTES = 16
_BITS = 128
_REDUCTION = 0x87


def polynomial_values(columns: ByteArray, blocks: int, point: bytes) -> ByteArray:
    """Return for each column the sum of its block b times `point`^(`blocks` - b).

    Args:
        columns: One column per row: (m, at least 16 · `blocks`), contiguous.
        blocks: How many blocks of 16 bytes are used, from the start of each column.
        point: The element at which the polynomials are evaluated.

    Returns:
        One element per row: (m, 16).
    """
    native = kernels.native
    if native is not None:
        out = np.empty((len(columns), ELEMENT_BYTES), dtype=np.uint8)
        native.column_hashes(columns, blocks, point, out)
        return out
    multiples = _multiples_of_bytes(int.from_bytes(point, "little")).reshape(-1, 2)
    first_of_byte = np.arange(ELEMENT_BYTES) * 256
    values = np.zeros((len(columns), ELEMENT_BYTES), dtype=np.uint8)
    for at in range(0, ELEMENT_BYTES * blocks, ELEMENT_BYTES):
        values ^= columns[:, at : at + ELEMENT_BYTES]
        products = np.bitwise_xor.reduce(multiples[first_of_byte + values], axis=1)
        values = products.view(np.uint8)
    return values


def _multiples_of_bytes(factor: int) -> npt.NDArray[np.uint64]:
    """Return the product of the factor and of each byte at each of the 16 places: (16, 256, 2)."""
    powers = np.empty((_BITS, ELEMENT_BYTES), dtype=np.uint8)
    for i in range(_BITS):
        powers[i] = np.frombuffer(factor.to_bytes(ELEMENT_BYTES, "little"), dtype=np.uint8)
        factor = _times_x(factor)
    by_byte = powers.view("<u8").reshape(ELEMENT_BYTES, 8, 2)
    multiples = np.zeros((ELEMENT_BYTES, 256, 2), dtype="<u8")
    for bit in range(8):
        size = 1 << bit
        multiples[:, size : 2 * size] = multiples[:, :size] ^ by_byte[:, bit, None]
    return multiples


def _times_x(element: int) -> int:
    doubled = element << 1
    return doubled ^ (1 << _BITS | _REDUCTION) if doubled >> _BITS else doubled
