"""AES against published vectors; the hashes and the streams against their definitions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.oblivious_transfer import kernels
from florist.common.oblivious_transfer.fixed_key_aes import (
    PAD_KEY,
    SELECTION_KEY,
    TRANSFER_KEY,
    masked_permutation,
    permuted,
    tweaked_hashes,
)
from florist.common.oblivious_transfer.key_streams import key_streams
from tests.unit.oblivious_transfer import oracles

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray, Kernels

# Key, plaintext, ciphertext: FIPS 197, appendices B and C.1.
FIPS_197 = (
    (
        "2b7e151628aed2a6abf7158809cf4f3c",
        "3243f6a8885a308d313198a2e0370734",
        "3925841d02dc09fbdc118597196a0b32",
    ),
    (
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "69c4e0d86a7b0430d8cdb78070b4c55a",
    ),
)

# AESAVS, appendix D: the key is 0, and the plaintext begins with so many ones.
AESAVS = (
    (1, "3ad78e726c1ec02b7ebfe92b23d9ec34"),
    (2, "aae5939c8efdf2f04e60b9fe7117b2c2"),
    (3, "f031d4d74f5dcbf39daaf8ca3af6e527"),
    (4, "96d9fd5cc4f07441727df0f33e401a36"),
)


def rows(data: bytes) -> ByteArray:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 16)


@pytest.mark.parametrize(("key", "plain", "expected"), FIPS_197)
def test_fips_197(key: str, plain: str, expected: str) -> None:
    assert permuted(bytes.fromhex(key), rows(bytes.fromhex(plain))).tobytes().hex() == expected


@pytest.mark.parametrize(("key", "plain", "expected"), FIPS_197)
def test_fips_197_by_the_kernel(native: Kernels, key: str, plain: str, expected: str) -> None:
    """The pad of a row of zeros is π(k) ^ k, so with the row's key as the plaintext it is known."""
    for count in (1, 7, 8, 9):
        out = np.empty((count, 16), np.uint8)
        plains = bytes.fromhex(plain) * count
        native.encrypt_rows(bytes.fromhex(key), plains, bytes(16 * count), out)
        expected_pad = oracles.xor(bytes.fromhex(expected), bytes.fromhex(plain))
        assert out.tobytes() == expected_pad * count


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(("ones", "expected"), AESAVS)
def test_aesavs(ones: int, expected: str) -> None:
    """The first block of stream `number` is AES of the number and zeros."""
    number = (2**ones - 1) << (64 - ones)
    for blocks in (1, 8, 11):
        streams = key_streams(np.zeros((2, 16), np.uint8), number, blocks)
        assert [row[:16].tobytes().hex() for row in streams] == [expected] * 2


def test_the_fixed_keys_are_the_fraction_of_pi() -> None:
    """By Machin's formula in integers: pi = 16·arctan(1/5) - 4·arctan(1/239)."""
    scale = 1 << 448

    def arctan(inverse: int) -> int:
        total, power, k = 0, scale // inverse, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power //= inverse * inverse
            k += 1
        return total

    fraction = (16 * arctan(5) - 4 * arctan(239)) % scale >> 64
    assert fraction.to_bytes(48) == TRANSFER_KEY + SELECTION_KEY + PAD_KEY


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_hashes(count: int) -> None:
    blocks, offset, first = os.urandom(16 * count), os.urandom(16), 2**64 - 1 - count
    hashes = tweaked_hashes(rows(blocks), offset, first)
    assert hashes.shape == (count, 16)
    for i in range(count):
        block = oracles.xor(blocks[16 * i : 16 * i + 16], offset)
        assert hashes[i].tobytes() == oracles.tweaked_hash(TRANSFER_KEY, block, first + i)


@settings(max_examples=20)
@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1))
def test_masked_permutation(key: bytes, counter: int) -> None:
    inputs = np.frombuffer(key, dtype="<u8").copy()
    inputs[0] ^= np.uint64(counter)
    mixed = oracles.xor(key, counter.to_bytes(16, "little"))
    expected = oracles.xor(oracles.aes(PAD_KEY, mixed), mixed)
    assert masked_permutation(PAD_KEY, inputs).tobytes() == expected


@pytest.mark.parametrize(("count", "blocks"), [(0, 3), (1, 1), (3, 7), (2, 8), (5, 9), (129, 25)])
def test_streams_by_the_kernel(
    native: Kernels, monkeypatch: pytest.MonkeyPatch, count: int, blocks: int
) -> None:
    keys, number = rows(os.urandom(16 * count)), int.from_bytes(os.urandom(8))
    by_kernel = key_streams(keys, number, blocks)
    monkeypatch.setattr(kernels, "native", None)
    assert np.array_equal(by_kernel, key_streams(keys, number, blocks))
    assert by_kernel.shape == (count, 16 * blocks)


@pytest.mark.usefixtures("either")
def test_a_longer_stream_continues_a_shorter_one() -> None:
    keys = rows(os.urandom(32))
    assert np.array_equal(key_streams(keys, 5, 20)[:, :48], key_streams(keys, 5, 3))
    assert not np.array_equal(key_streams(keys, 5, 3), key_streams(keys, 6, 3))
