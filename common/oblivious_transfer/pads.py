"""Pads for whole arrays: each row is encrypted with a key of its own that is used once.

Block j of a row's pad is π(k ^ j) ^ k ^ j with the row's key k: the counter mode of the
Even-Mansour cipher with key k, without a key schedule per row (see `fixed_key_aes.py`). The inputs
k ^ j of the blocks of a row are different, and the keys are outputs of a hash: random, unknown
unless opened, and of one use. A pad does not authenticate: the channel does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.oblivious_transfer import kernels
from florist.common.oblivious_transfer.fixed_key_aes import BLOCK_BYTES, PAD_KEY, masked_permutation

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.fixed_key_aes import Words
    from florist.common.oblivious_transfer.kernels import ByteArray

#: Bytes of pad computed at once without the kernels, so that all steps stay in a processor's cache.
_AT_ONCE = 1 << 17


def encrypt_rows(keys: ByteArray, rows: ByteArray, out: ByteArray | None = None) -> ByteArray:
    """Return each row xored with the pad of its key; applied again, it decrypts.

    Args:
        keys: One key per row, which encrypts nothing else: (n, 16).
        rows: (n, any number of bytes), contiguous.
        out: Where to write the result, of the same shape, contiguous: `rows` itself, or an array
            that does not overlap it.

    Returns:
        `out`, or a new array.
    """
    if out is None:
        out = np.empty_like(rows, order="C")
    _check(keys, rows, out)
    native = kernels.native
    if native is not None:
        native.encrypt_rows(PAD_KEY, np.ascontiguousarray(keys), rows, out)
        return out
    blocks = -(-rows.shape[1] // BLOCK_BYTES)
    blocks_at_once = max(1, min(blocks, _AT_ONCE // BLOCK_BYTES))
    rows_at_once = max(1, _AT_ONCE // (BLOCK_BYTES * blocks_at_once))
    words: Words = np.ascontiguousarray(keys).view("<u8")[:, None, :]
    for block in range(0, blocks, blocks_at_once):
        counters: Words = np.zeros((min(blocks_at_once, blocks - block), 2), dtype="<u8")
        counters[:, 0] = np.arange(block, block + len(counters))
        columns = slice(BLOCK_BYTES * block, BLOCK_BYTES * (block + len(counters)))
        for row in range(0, len(rows), rows_at_once):
            part = rows[row : row + rows_at_once, columns]
            inputs = words[row : row + rows_at_once] ^ counters
            pad = masked_permutation(PAD_KEY, inputs).view(np.uint8).reshape(len(part), -1)
            np.bitwise_xor(
                part, pad[:, : part.shape[1]], out=out[row : row + rows_at_once, columns]
            )
    return out


def _check(keys: ByteArray, rows: ByteArray, out: ByteArray) -> None:
    for name, array in (("keys", keys), ("rows", rows), ("out", out)):
        if array.dtype != np.uint8 or array.ndim != 2:
            raise ValueError(f"{name}: not a two-dimensional array of bytes")
    if keys.shape != (len(rows), BLOCK_BYTES):
        raise ValueError(f"keys of shape {keys.shape} for {len(rows)} rows")
    if out.shape != rows.shape:
        raise ValueError(f"out has shape {out.shape}, rows have {rows.shape}")
    if not (rows.flags.c_contiguous and out.flags.c_contiguous):
        raise ValueError("rows and out: not contiguous")
    if out.ctypes.data != rows.ctypes.data and np.may_share_memory(out, rows):
        raise ValueError("out overlaps rows")
