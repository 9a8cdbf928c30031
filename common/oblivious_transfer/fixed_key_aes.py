"""Hashes from AES with fixed, public keys, which are modelled as independent random permutations.

Three permutations π keep the three uses apart: the keys of random transfers, the keys of 1-of-C
transfers, and pads. Each fixed key is 128 bits of the fraction of the number pi (the first words of
Blowfish's P-array), so that nobody could choose it.

`tweaked_hashes` is TMMO of Guo, Katz, Wang and Yu (IEEE S&P 2020), π(π(x) ^ i) ^ π(x), which they
prove tweakable circular correlation robust. `masked_permutation` of a key and a counter is MMO,
π(k ^ j) ^ k ^ j: the Even-Mansour cipher with the single key k (Dunkelman, Keller and Shamir,
EUROCRYPT 2012) of the block j, xored with the public j, hence a pseudorandom function of j with the
key k. If the adversary evaluates π p times and sees q outputs in total, its advantage against
either is of the order of (p·q + q²) / 2^128.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from florist.common.oblivious_transfer import kernels

if TYPE_CHECKING:
    from florist.common.oblivious_transfer.kernels import ByteArray

BLOCK_BYTES = 16

TRANSFER_KEY = bytes.fromhex("243f6a8885a308d313198a2e03707344")
SELECTION_KEY = bytes.fromhex("a4093822299f31d0082efa98ec4e6c89")
PAD_KEY = bytes.fromhex("452821e638d01377be5466cf34e90c6c")

#: Two little-endian words of 64 bits for each block; counters and tweaks are in the first.
Words = npt.NDArray[np.uint64]


def permuted(key: bytes, blocks: npt.NDArray[np.generic]) -> ByteArray:
    """Apply AES with this key to each 16 bytes of a contiguous array; a read-only, flat array."""
    # ECB is the bare permutation; what is built on it is not.
    encryptor = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()  # noqa: S305
    return np.frombuffer(encryptor.update(blocks.reshape(-1).view(np.uint8).data), dtype=np.uint8)


def masked_permutation(key: bytes, inputs: Words) -> Words:
    """Return π(x) ^ x of each block x of a contiguous array of words, in the same shape."""
    return permuted(key, inputs).view("<u8").reshape(inputs.shape) ^ inputs


def tweaked_hashes(blocks: ByteArray, offset: bytes, first: int) -> ByteArray:
    """Return π(π(x) ^ i) ^ π(x) of each row, with x = row ^ `offset` and i = `first` + its index.

    Args:
        blocks: One block per row: (n, 16).
        offset: 16 bytes.
        first: The tweak of the first row; `first` + n is at most 2^64.

    Returns:
        One hash per row: (n, 16).
    """
    blocks = np.ascontiguousarray(blocks)
    native = kernels.native
    if native is not None:
        out = np.empty_like(blocks)
        native.tweaked_hashes(TRANSFER_KEY, blocks, offset, first, out)
        return out
    inner = permuted(TRANSFER_KEY, blocks ^ np.frombuffer(offset, dtype=np.uint8)).view("<u8")
    outer = inner.copy()
    outer[::2] ^= np.uint64(first) + np.arange(len(blocks), dtype=np.uint64)
    hashes: Words = permuted(TRANSFER_KEY, outer).view("<u8") ^ inner
    return hashes.view(np.uint8).reshape(blocks.shape)
