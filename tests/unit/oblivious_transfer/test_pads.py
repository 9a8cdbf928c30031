"""Pads against their definition, in place and by slices."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.oblivious_transfer import encrypt_rows, kernels, pads
from florist.common.oblivious_transfer.fixed_key_aes import PAD_KEY
from tests.unit.oblivious_transfer import oracles

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray, Kernels


def random_bytes(*shape: int) -> ByteArray:
    return np.frombuffer(os.urandom(int(np.prod(shape))), np.uint8).reshape(shape)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("row_bytes", [0, 1, 15, 16, 17, 31, 64, 100, 127, 128, 129, 300])
def test_pads_by_their_definition(row_bytes: int) -> None:
    for count in (0, 1, 3, 9):
        keys, rows = random_bytes(count, 16), random_bytes(count, row_bytes)
        encrypted = encrypt_rows(keys, rows)
        assert encrypted.shape == rows.shape
        for key, row, seen in zip(keys, rows, encrypted, strict=True):
            pad = oracles.pad(PAD_KEY, key.tobytes(), row_bytes)
            assert seen.tobytes() == bytes(a ^ b for a, b in zip(row.tobytes(), pad, strict=True))
        assert np.array_equal(encrypt_rows(keys, encrypted), rows)


@settings(max_examples=100)
@given(st.integers(0, 40), st.integers(0, 300))
def test_both_ways_agree(native: Kernels, count: int, row_bytes: int) -> None:
    keys, rows = random_bytes(count, 16), random_bytes(count, row_bytes)
    with pytest.MonkeyPatch.context() as patch:
        by_kernel = encrypt_rows(keys, rows)
        patch.setattr(kernels, "native", None)
        patch.setattr(pads, "_AT_ONCE", 64)  # many slices, of rows and of parts of rows
        assert np.array_equal(by_kernel, encrypt_rows(keys, rows))


@pytest.mark.usefixtures("either")
def test_in_place_and_elsewhere() -> None:
    keys, rows = random_bytes(20, 16), random_bytes(20, 77)
    expected = encrypt_rows(keys, rows)
    buffer = np.full((22, 77), 7, np.uint8)
    buffer[1:21] = rows
    assert encrypt_rows(keys, buffer[1:21], out=buffer[1:21]).base is buffer
    assert np.array_equal(buffer[1:21], expected)
    assert (buffer[[0, 21]] == 7).all()
    out = np.empty_like(rows)
    assert encrypt_rows(keys, rows, out=out) is out
    assert np.array_equal(out, expected)
    # Keys may be any view.
    wide = np.zeros((20, 32), np.uint8)
    wide[:, 3:19] = keys
    assert np.array_equal(encrypt_rows(wide[:, 3:19], rows), expected)


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("shape", [(1 << 17, 64), (2, 1 << 22)])
def test_memory_is_bounded_without_kernels(shape: tuple[int, int]) -> None:
    rows, keys = np.zeros(shape, np.uint8), random_bytes(shape[0], 16)
    tracemalloc.start()
    try:
        encrypt_rows(keys, rows, out=rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * pads._AT_ONCE < rows.size


def test_arguments() -> None:
    keys, rows = random_bytes(4, 16), np.zeros((4, 32), np.uint8)
    with pytest.raises(ValueError, match="keys of shape"):
        encrypt_rows(keys[:3], rows)
    with pytest.raises(ValueError, match="keys of shape"):
        encrypt_rows(random_bytes(4, 15), rows)
    with pytest.raises(ValueError, match="keys: not a two-dimensional"):
        encrypt_rows(keys.reshape(-1), rows)
    with pytest.raises(ValueError, match="rows: not a two-dimensional"):
        encrypt_rows(keys, rows.astype(np.float32))
    with pytest.raises(ValueError, match="out has shape"):
        encrypt_rows(keys, rows, out=np.empty((4, 31), np.uint8))
    with pytest.raises(ValueError, match="not contiguous"):
        encrypt_rows(keys, np.zeros((4, 64), np.uint8)[:, :32])
    buffer = np.zeros(4 * 32 + 16, np.uint8)
    one, other = (buffer[at : at + 128].reshape(4, 32) for at in (0, 16))
    with pytest.raises(ValueError, match="overlaps"):
        encrypt_rows(keys, one, out=other)
