"""Randomness that protects a party's privacy: secret to the peer, repeatable by its owner.

The peer sees traces of what is drawn here (synthetic labels through gradients, noise on
embeddings), so the generator is a cipher and not a statistical one: word `i` of a stream is AES-256
of the block `i`. The key of a stream is derived from the party's secret, a purpose and a context,
such as an epoch and a step. Any word is computed alone, so nothing need be kept in memory, and a
run that is resumed draws the same again. Standards fix the words; no library's version can change
them.
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
#: Blocks that become normal numbers together: all steps stay within a processor's cache.
_AT_ONCE = 1 << 13

Uniforms = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SecretDraws:
    """Draws by purpose and context: the same arguments always give the same values.

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
        """From the operating system's randomness."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_seed(cls, seed: int) -> Self:
        """For experiments that are to be repeated; whoever guesses the seed knows all draws."""
        return cls(hashlib.sha256(b"FLORIST experiment seed %d" % seed).digest())

    def derive(self, purpose: str, *context: int) -> Self:
        """An independent source, for instance one for the test set."""
        return type(self)(self._key(f"derive {purpose}", context))

    def uniforms(self, purpose: str, count: int, *context: int) -> Uniforms:
        """`count` multiples of 2^-53, uniform in [0, 1)."""
        return self.uniforms_at(purpose, np.arange(count), *context)

    def uniforms_at(self, purpose: str, positions: Integers, *context: int) -> Uniforms:
        """Entries `positions` (at least 0, any shape) of an endless stream of `uniforms`."""
        words = self._words(purpose, positions, context)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, purpose: str, count: int, below: int, *context: int) -> Integers:
        """`count` integers from 0 to `below` - 1.

        They are remainders of 64 bits, so a small value is more likely than a large one by a factor
        of at most 1 + `below` / 2^63.
        """
        return self.integers_at(purpose, np.arange(count), below, *context)

    def integers_at(self, purpose: str, positions: Integers, below: int, *context: int) -> Integers:
        """Entries `positions` (at least 0, any shape) of an endless stream of `integers`."""
        if not 0 < below < 2**63:
            raise ValueError(f"no integers from 0 to below {below} can be drawn")
        return (self._words(purpose, positions, context) % np.uint64(below)).astype(np.int64)

    def normals(self, purpose: str, shape: Sequence[int], *context: int) -> npt.NDArray[np.float32]:
        """Standard normal numbers (Box-Muller in float32), at most 6.8 in size.

        The words behind them are exact everywhere; logarithm and cosine may differ in the last bit
        between processors.
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
        """Two words of 64 bits per position."""
        blocks = np.zeros((len(positions), 2), dtype="<u8")
        blocks[:, 0] = positions
        # ECB of distinct counters is counter mode with random access.
        cipher = Cipher(algorithms.AES(self._key(purpose, context)), modes.ECB())  # noqa: S305
        # Into an array, for which it wants room for one block more, at a fraction of the time.
        words = np.empty((len(positions) + 1, 2), dtype="<u8")
        cipher.encryptor().update_into(_flat(blocks), _flat(words))
        return words[:-1]

    def _key(self, purpose: str, context: Sequence[int]) -> bytes:
        """A key per purpose and context; lengths first, so that no two are encoded alike."""
        name = purpose.encode()
        encoded = struct.pack(f"<II{len(name)}s", len(name), len(context), name)
        return hmac.digest(
            self.secret, encoded + struct.pack(f"<{len(context)}q", *context), "sha256"
        )


def _box_muller(blocks: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    """Four normal numbers of each block: its first word gives two radii, its second two angles."""
    first, second = (np.ascontiguousarray(words).view("<u4") for words in blocks.T)
    # Half a step above 0, where the logarithm has no value.
    uniform = (first.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = np.sqrt(np.float32(-2) * np.log(uniform))
    angle = second.astype(np.float32) * np.float32(2 * math.pi / 2**32)
    drawn = np.empty_like(blocks)
    # Two numbers move as one of 64 bits.
    drawn[:, 0] = (radius * np.cos(angle)).view("<u8")
    drawn[:, 1] = (radius * np.sin(angle)).view("<u8")
    return drawn.view("<f4")


def _flat(words: npt.NDArray[np.uint64]) -> memoryview:
    """The same memory as bytes."""
    return words.reshape(-1).view(np.uint8).data
