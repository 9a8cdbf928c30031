"""Randomness that protects a party's privacy: unknown to the peer, reproducible by its owner.

The peer sees traces of these draws (synthetic labels through gradients, noise on embeddings), so
the generator is a cipher rather than a statistical one: word `i` of a stream is AES-256 of block
`i`. The key of a stream is derived from the party's secret, a purpose and a context, such as an
epoch and a step. Each word can be computed on its own, so nothing needs to be kept in memory, and a
resumed run makes the same draws. The words are fixed by standards and do not depend on the version
of any library.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET_BYTES = 32
#: Blocks converted to normal numbers at once, so that all steps stay in a processor's cache.
_AT_ONCE = 1 << 13

Uniforms = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SecretDraws:
    """Random values by purpose and context: the same arguments always give the same values.

    Different purposes, contexts or secrets give independent values.
    """

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(self.secret)}")

    def __repr__(self) -> str:
        return "SecretDraws(…)"

    @classmethod
    def fresh(cls) -> Self:
        """Use a new secret from the operating system's randomness."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_seed(cls, seed: int) -> Self:
        """Use a seed, for reproducible experiments. Anyone who guesses the seed knows all draws."""
        return cls(hashlib.sha256(b"FLORIST experiment seed %d" % seed).digest())

    def derive(self, purpose: str, *context: int) -> Self:
        """Return an independent source, for instance one for the test set."""
        return type(self)(self._key(f"derive {purpose}", context))

    def uniforms(self, purpose: str, count: int, *context: int) -> Uniforms:
        """Return `count` multiples of 2^-53, uniform in [0, 1)."""
        return self.uniforms_at(purpose, np.arange(count), *context)

    def uniforms_at(self, purpose: str, positions: Integers, *context: int) -> Uniforms:
        """Return the entries at `positions` (at least 0, any shape) of the stream of `uniforms`."""
        words = self._words(purpose, positions, context)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers_at(self, purpose: str, positions: Integers, below: int, *context: int) -> Integers:
        """Return the entries at `positions` (at least 0, any shape) of a stream of integers.

        They range from 0 to `below` - 1. They are remainders of 64 bits, so a small value is more
        likely than a large one by a factor of at most 1 + `below` / 2^63.
        """
        if not 0 < below < 2**63:
            raise ValueError(f"the upper bound {below} is not between 1 and 2^63 - 1")
        return (self._words(purpose, positions, context) % np.uint64(below)).astype(np.int64)

    def normals(self, purpose: str, shape: Sequence[int], *context: int) -> npt.NDArray[np.float32]:
        """Return standard normal numbers (Box-Muller in float32), at most 6.8 in absolute value.

        The underlying words are the same everywhere. Logarithm and cosine may differ in the last
        bit between processors.
        """
        count = math.prod(shape)
        drawn = np.empty((-(-count // 4), 4), dtype=np.float32)
        for start in range(0, len(drawn), _AT_ONCE):
            part = drawn[start : start + _AT_ONCE]
            positions = np.arange(start, start + len(part))
            part[:] = _box_muller(self._blocks(purpose, positions, context))
        return drawn.ravel()[:count].reshape(shape)

    def _words(
        self, purpose: str, positions: Integers, context: Sequence[int]
    ) -> npt.NDArray[np.uint64]:
        return self._blocks(purpose, positions.ravel(), context)[:, 0].reshape(positions.shape)

    def _blocks(
        self, purpose: str, positions: Integers, context: Sequence[int]
    ) -> npt.NDArray[np.uint64]:
        """Return two words of 64 bits per position."""
        blocks = np.zeros((len(positions), 2), dtype="<u8")
        blocks[:, 0] = positions
        # ECB on distinct counters is counter mode with random access.
        cipher = Cipher(algorithms.AES(self._key(purpose, context)), modes.ECB())  # noqa: S305
        # `update_into` needs room for one more block, and takes a fraction of the time of `update`.
        words = np.empty((len(positions) + 1, 2), dtype="<u8")
        cipher.encryptor().update_into(_flat(blocks), _flat(words))
        return words[:-1]

    def _key(self, purpose: str, context: Sequence[int]) -> bytes:
        """Derive the key of a purpose and context; lengths come first, so encodings are unique."""
        name = purpose.encode()
        encoded = struct.pack(f"<II{len(name)}s", len(name), len(context), name)
        return hmac.digest(
            self.secret, encoded + struct.pack(f"<{len(context)}q", *context), "sha256"
        )


def _box_muller(blocks: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    """Convert each block to four normal numbers: its words give two radii and two angles."""
    first, second = (np.ascontiguousarray(words).view("<u4") for words in blocks.T)
    # Half a step above 0, where the logarithm is undefined.
    uniform = (first.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = np.sqrt(np.float32(-2) * np.log(uniform))
    angle = second.astype(np.float32) * np.float32(2 * math.pi / 2**32)
    drawn = np.empty_like(blocks)
    # Two numbers are moved as one of 64 bits.
    drawn[:, 0] = (radius * np.cos(angle)).view("<u8")
    drawn[:, 1] = (radius * np.sin(angle)).view("<u8")
    return drawn.view("<f4")


def _flat(words: npt.NDArray[np.uint64]) -> memoryview:
    """Return the same memory as bytes."""
    return words.reshape(-1).view(np.uint8).data
