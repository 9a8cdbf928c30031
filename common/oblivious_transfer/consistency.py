"""The check that a receiver used the same choices in every column of its matrix.

It is the check of SoftSpokenOT (Roy, CRYPTO 2022) for k = 1, the extension of Ishai, Kilian, Nissim
and Petrank: a linear, universal hash of each column, for which the published proof holds. With t
the receiver's columns, x its choices, q the sender's columns and s the sender's bits,
q[i] = t[i] ^ s[i]·x. The receiver sends the hashes of x and of every t[i], and the sender checks
the same equation on hashes. Columns that hide another x are noticed, unless their hashes collide or
the receiver guesses the bits s[i] of those columns.

A column consists of blocks X[0], ..., X[L-1] of 128 bits and two blocks P[0], P[1] of padding. Its
hash is two elements of GF(2^128): P[m] + the sum over b of X[b]·point[m]^(L-b). Two different
columns collide with probability at most (L / 2^128)² over the two random points, because a non-zero
polynomial of degree L has at most L roots. The padding of x is random, so the hash of x reveals
nothing about the rest of x; the hashes of t follow from it and from what the sender knows.

The points are a hash of the receiver's matrix (Fiat-Shamir), so that the check needs no answer. A
receiver that tries Q matrices finds a collision of any two columns with probability below
Q · 2^14 · (L / 2^128)²: Q / 2^224 for a block of 65,536 transfers.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.oblivious_transfer.gf128 import ELEMENT_BYTES, polynomial_values
from florist.common.oblivious_transfer.key_derivation import digest

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray

_POINTS = 2
#: Rows whose choices are random and used for nothing but this check.
PADDING_ROWS = 128 * _POINTS
PADDING_BYTES = PADDING_ROWS // 8
#: Bytes of the hash of a column.
HASH_BYTES = ELEMENT_BYTES * _POINTS


def challenge(context: bytes, number: int, matrix: ByteArray) -> bytes:
    """Return the two points for a block: a hash of everything before the check."""
    points = digest("consistency challenge", context, number, np.ascontiguousarray(matrix).data)
    assert len(points) == HASH_BYTES
    return points


def column_hashes(columns: ByteArray, points: bytes) -> ByteArray:
    """Return the hash of each column.

    Args:
        columns: One column per row, its padding last: (m, bytes), contiguous.
        points: The challenge.

    Returns:
        One hash per row: (m, 32).
    """
    blocks = (columns.shape[1] - PADDING_BYTES) // ELEMENT_BYTES
    values = [
        polynomial_values(columns, blocks, points[at : at + ELEMENT_BYTES])
        for at in range(0, HASH_BYTES, ELEMENT_BYTES)
    ]
    return np.concatenate(values, axis=1) ^ columns[:, -PADDING_BYTES:]


def check_columns(
    columns: ByteArray, masks: ByteArray, points: bytes, choices: ByteArray, hashes: ByteArray
) -> None:
    """Check a sender's columns against the hashes that the receiver sent.

    Args:
        columns: The sender's columns: (128, bytes), contiguous.
        masks: 0 or 255 for each bit of the sender: (128, 1).
        points: The challenge.
        choices: The receiver's hash of its choices: (32,).
        hashes: The receiver's hash of each of its columns: (128, 32).

    Raises:
        ProtocolViolation: the receiver's matrix is inconsistent.
    """
    expected = hashes ^ (masks & choices)
    if not hmac.compare_digest(column_hashes(columns, points).tobytes(), expected.tobytes()):
        raise ProtocolViolation(
            "the choices in a block of oblivious transfers are inconsistent; do not use the "
            "secrets of this run again"
        )
