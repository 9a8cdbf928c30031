"""The transposition of matrices of bits. Bit i of a byte has the value 1 << i, everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.oblivious_transfer import kernels

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray

#: Columns of every matrix: bits of a row.
COLUMNS = 128
ROW_BYTES = COLUMNS // 8


def transposed(columns: ByteArray, rows: int) -> ByteArray:
    """Return the first `rows` rows of a matrix that is stored by columns.

    Args:
        columns: One column per row of the array: (128, at least `rows` / 8), contiguous.
        rows: A multiple of 128, and not 0.

    Returns:
        One row of 128 bits per row of the array: (`rows`, 16).
    """
    native = kernels.native
    if native is not None:
        out = np.empty((rows, ROW_BYTES), dtype=np.uint8)
        native.transpose_bits(columns, out)
        return out
    # Squares of 8 times 8 bits as words: byte i of a word is from column i, and then of row i.
    squares = columns[:, : rows // 8].reshape(ROW_BYTES, 8, rows // 8).transpose(2, 0, 1)
    words = np.ascontiguousarray(squares).view("<u8")
    # Exchange the bits, then the pairs, then the fours across the diagonal of each square.
    for shift, mask in (
        (7, 0x00AA00AA00AA00AA),
        (14, 0x0000CCCC0000CCCC),
        (28, 0x00000000F0F0F0F0),
    ):
        swapped = (words ^ (words >> np.uint64(shift))) & np.uint64(mask)
        words ^= swapped ^ (swapped << np.uint64(shift))
    rows_of_squares = words.view(np.uint8).reshape(rows // 8, ROW_BYTES, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(rows_of_squares).reshape(rows, ROW_BYTES)
