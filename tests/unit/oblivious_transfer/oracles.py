"""Slow and obvious versions of what the package computes on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray

MODULUS = 1 << 128 | 0x87


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES128(key), modes.ECB()).encryptor().update(block)


def xor(*values: bytes) -> bytes:
    result = 0
    for value in values:
        result ^= int.from_bytes(value)
    return result.to_bytes(len(values[0]))


def multiply(a: int, b: int) -> int:
    """Multiply in GF(2^128), bit by bit."""
    product = 0
    for i in range(128):
        product ^= (b >> i & 1) * (a << i)
    for i in range(254, 127, -1):
        product ^= (product >> i & 1) * (MODULUS << i - 128)
    return product


def polynomial_value(column: bytes, blocks: int, point: bytes) -> bytes:
    value = 0
    for b in range(blocks):
        value ^= int.from_bytes(column[16 * b : 16 * b + 16], "little")
        value = multiply(value, int.from_bytes(point, "little"))
    return value.to_bytes(16, "little")


def transposed(columns: ByteArray, rows: int) -> ByteArray:
    bits = np.unpackbits(columns, axis=1, bitorder="little")[:, :rows]
    return np.packbits(bits.T, axis=1, bitorder="little")


def tweaked_hash(key: bytes, block: bytes, tweak: int) -> bytes:
    inner = aes(key, block)
    return xor(aes(key, xor(inner, tweak.to_bytes(16, "little"))), inner)


def pad(key: bytes, row_key: bytes, size: int) -> bytes:
    inputs = [xor(row_key, j.to_bytes(16, "little")) for j in range(-(-size // 16))]
    return b"".join(xor(aes(key, each), each) for each in inputs)[:size]
