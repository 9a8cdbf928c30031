"""The kernels reject buffers of the wrong size; other tests check what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import Kernels

KEY = bytes(16)


def test_sizes_of_streams(native: Kernels) -> None:
    for keys, out, fault in ((15, 16, "keys"), (32, 40, "out"), (48, 64, "out"), (0, 16, "out")):
        with pytest.raises(ValueError, match=fault):
            native.key_streams(bytes(keys), 0, bytearray(out))
    native.key_streams(b"", 0, bytearray())
    native.key_streams(KEY, 0, bytearray())


def test_sizes_of_hashes(native: Kernels) -> None:
    for key, blocks, offset, out, fault in (
        (15, 32, 16, 32, "key"),
        (16, 31, 16, 31, "blocks"),
        (16, 32, 17, 32, "offset"),
        (16, 32, 16, 48, "out: 48 bytes, not 32"),
    ):
        with pytest.raises(ValueError, match=fault):
            native.tweaked_hashes(bytes(key), bytes(blocks), bytes(offset), 0, bytearray(out))


def test_sizes_of_pads(native: Kernels) -> None:
    for key, keys, rows, out, fault in (
        (17, 32, 64, 64, "key"),
        (16, 33, 66, 66, "keys"),
        (16, 32, 63, 63, "rows"),
        (16, 0, 1, 1, "rows"),
        (16, 32, 64, 63, "out"),
    ):
        with pytest.raises(ValueError, match=fault):
            native.encrypt_rows(bytes(key), bytes(keys), bytes(rows), bytearray(out))


def test_sizes_of_transpositions(native: Kernels) -> None:
    for columns, out, fault in (
        (127, 0, "columns"),
        (128 * 16, 100, "out"),
        (128 * 15, 128 * 16, "more rows than the columns have"),
        (128 * 16, 2 * 128 * 16, "more rows than the columns have"),
    ):
        with pytest.raises(ValueError, match=fault):
            native.transpose_bits(bytes(columns), bytearray(out))


def test_sizes_of_column_hashes(native: Kernels) -> None:
    for columns, blocks, point, out, fault in (
        (64, 1, 15, 32, "point"),
        (64, 1, 16, 31, "out"),
        (65, 1, 16, 32, "columns"),
        (64, 3, 16, 32, "blocks"),
        (64, -1, 16, 32, "blocks"),
    ):
        with pytest.raises(ValueError, match=fault):
            native.column_hashes(bytes(columns), blocks, bytes(point), bytearray(out))
    native.column_hashes(b"", 7, KEY, bytearray())


def test_results_need_writable_and_contiguous_memory(native: Kernels) -> None:
    with pytest.raises((BufferError, TypeError)):
        native.key_streams(KEY, 0, bytes(16))
    with pytest.raises((BufferError, TypeError, ValueError)):
        native.key_streams(KEY, 0, np.zeros((4, 8), np.uint8)[:, :4])


def test_nothing_is_written_beyond_the_output(native: Kernels) -> None:
    for count in range(1, 20):
        for row_bytes in (1, 15, 16, 33, 128, 130):
            out = np.full(count * row_bytes + 64, 7, np.uint8)
            end = count * row_bytes
            native.encrypt_rows(KEY, bytes(16 * count), bytes(end), out[:end])
            assert (out[end:] == 7).all()
        out = np.full(16 * count + 64, 7, np.uint8)
        native.tweaked_hashes(KEY, bytes(16 * count), KEY, 0, out[: 16 * count])
        assert (out[16 * count :] == 7).all()
        out[:] = 7
        native.key_streams(KEY, 0, out[: 16 * count])
        assert (out[16 * count :] == 7).all()
        out[:] = 7
        native.column_hashes(bytes(32 * count), 2, KEY, out[: 16 * count])
        assert (out[16 * count :] == 7).all()
    out = np.full(256 * 16 + 64, 7, np.uint8)
    native.transpose_bits(bytes(128 * 40), out[: 256 * 16])
    assert (out[256 * 16 :] == 7).all()
