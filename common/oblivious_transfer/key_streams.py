"""Pseudorandom streams of many keys: AES-128 in counter mode, addressed by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from florist.common.oblivious_transfer import kernels

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray

KEY_BYTES = 16
BLOCK_BYTES = 16


def key_streams(keys: ByteArray, number: int, blocks: int) -> ByteArray:
    """Return the first 16 · `blocks` bytes of stream `number` of each key.

    The initial counter block has the number (below 2^64) in its first eight bytes and 0 in its last
    eight, so that the streams of different numbers do not overlap.

    Args:
        keys: One key per row: (m, 16).
        number: Which stream.
        blocks: How many blocks of 16 bytes of it.

    Returns:
        One stream per row: (m, 16 · `blocks`).
    """
    out = np.empty((len(keys), BLOCK_BYTES * blocks), dtype=np.uint8)
    native = kernels.native
    if native is not None:
        native.key_streams(np.ascontiguousarray(keys), number, out)
        return out
    start = modes.CTR(number.to_bytes(8, "big") + bytes(8))
    zeros = bytes(BLOCK_BYTES * blocks)
    for key, row in zip(keys, out, strict=True):
        stream = Cipher(algorithms.AES128(key.tobytes()), start).encryptor().update(zeros)
        row[:] = np.frombuffer(stream, dtype=np.uint8)
    return out
