"""Transposition and polynomials over GF(2^128), against GCM's vectors and slow versions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.oblivious_transfer import kernels
from florist.common.oblivious_transfer.bit_matrix import transposed
from florist.common.oblivious_transfer.gf128 import polynomial_values
from tests.unit.oblivious_transfer import oracles

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray, Kernels

# H, data with its length block, GHASH: test cases 2 and 3 of the specification of GCM.
GHASH = (
    (
        "66e94bd4ef8a2c3b884cfa59ca342b2e",
        "0388dace60b6a392f328c2b971b2fe7800000000000000000000000000000080",
        "f38cbb1ad69223dcc3457ae5b6b0f885",
    ),
    (
        "b83b533708bf535d0aa6e52980d53b78",
        (
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
            "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985"
            "00000000000000000000000000000200"
        ),
        "7f1b32b81b820d02614f8895ac1d4eac",
    ),
)


def reflected(data: bytes) -> bytes:
    """Convert between GCM's order of bits and ours: reverse the bits of each byte."""
    return bytes(int(f"{byte:08b}"[::-1], 2) for byte in data)


def random_columns(count: int, size: int) -> ByteArray:
    return np.frombuffer(os.urandom(count * size), np.uint8).reshape(count, size)


def ghash(point: bytes, data: bytes) -> bytes:
    columns = np.frombuffer(reflected(data), np.uint8).reshape(1, -1)
    values = polynomial_values(columns, len(data) // 16, reflected(point))
    return reflected(values.tobytes())


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(("point", "data", "expected"), GHASH)
def test_vectors_of_gcm(point: str, data: str, expected: str) -> None:
    assert ghash(bytes.fromhex(point), bytes.fromhex(data)).hex() == expected


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("blocks", [0, 1, 5, 8, 13, 32])
def test_against_gcm_of_openssl(blocks: int) -> None:
    """A tag of no message is GHASH of the associated data, xored with AES of the first counter."""
    key, data = os.urandom(16), os.urandom(16 * blocks)
    tag = AESGCM(key).encrypt(bytes(12), b"", data)
    lengths = (8 * len(data)).to_bytes(8) + bytes(8)
    value = ghash(oracles.aes(key, bytes(16)), data + lengths)
    assert oracles.xor(value, oracles.aes(key, bytes(15) + b"\1")) == tag


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("blocks", [0, 1, 2, 7, 8, 9, 17])
def test_against_multiplication_bit_by_bit(blocks: int) -> None:
    columns, point = random_columns(3, 16 * blocks + 5), os.urandom(16)
    values = polynomial_values(columns, blocks, point)
    assert [value.tobytes() for value in values] == [
        oracles.polynomial_value(column.tobytes(), blocks, point) for column in columns
    ]


@settings(max_examples=50)
@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=3), st.data())
def test_extreme_elements(elements: list[bytes], data: st.DataObject) -> None:
    point = data.draw(st.sampled_from([bytes(16), b"\1" + bytes(15), b"\xff" * 16, elements[0]]))
    columns = np.frombuffer(b"".join(elements) + b"\xff" * 16, np.uint8).reshape(1, -1)
    blocks = columns.size // 16
    values = polynomial_values(columns, blocks, point).tobytes()
    assert values == oracles.polynomial_value(columns.tobytes(), blocks, point)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(("rows", "spare"), [(128, 0), (128, 32), (256, 1), (640, 48)])
def test_transposition(rows: int, spare: int) -> None:
    columns = random_columns(128, rows // 8 + spare)
    assert np.array_equal(transposed(columns, rows), oracles.transposed(columns, rows))


@pytest.mark.usefixtures("either")
def test_every_single_bit_goes_to_its_place() -> None:
    for column, row in [(0, 0), (1, 0), (0, 1), (127, 0), (0, 127), (77, 200), (127, 255)]:
        columns = np.zeros((128, 32), np.uint8)
        columns[column, row // 8] = 1 << row % 8
        rows = transposed(columns, 256)
        assert rows[row, column // 8] == 1 << column % 8
        assert np.count_nonzero(rows) == 1


@pytest.mark.parametrize("blocks", [1, 8, 513])
def test_both_ways_agree(native: Kernels, monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    columns, point = random_columns(129, 16 * blocks + 32), os.urandom(16)
    by_kernel = polynomial_values(columns, blocks, point)
    monkeypatch.setattr(kernels, "native", None)
    assert np.array_equal(by_kernel, polynomial_values(columns, blocks, point))
