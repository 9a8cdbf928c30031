"""Exact samplers in integers only, and the sources of randomness that they take.

They follow Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (arXiv
2004.00010). They compare integers, so the probabilities are exactly the stated ones. With
floating-point numbers they would not be, and the low bits of a sample could reveal what it was
added to (Mironov 2012). Their running time depends on the result.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

if TYPE_CHECKING:
    from fractions import Fraction

#: Returns an integer that is uniform on {0, ..., n - 1}.
RandomBelow = Callable[[int], int]

SECRET_BYTES = 32
#: Names the construction of a stream; it is increased when the numbers change.
_DOMAIN = b"florist/secret-stream/1/"
#: Bytes of a stream that are computed at once; the numbers do not depend on it.
_AT_ONCE = 4096


def bernoulli_exp(numerator: int, denominator: int, below: RandomBelow) -> bool:
    """Return True with probability exp(-`numerator` / `denominator`): their Algorithm 1.

    The ratio is at least 0, and need not be in lowest terms.
    """
    if numerator < 0 or denominator < 1:
        raise ValueError("the exponent must be at least 0, and its denominator at least 1")
    while numerator > denominator:
        if not _bernoulli_exp(1, 1, below):
            return False
        numerator -= denominator
    return _bernoulli_exp(numerator, denominator, below)


def _bernoulli_exp(numerator: int, denominator: int, below: RandomBelow) -> bool:
    """The same for a ratio of at most 1."""
    k = 1
    while below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace(epsilon: Fraction, below: RandomBelow) -> int:
    """Draw an integer `y` with probability proportional to exp(-epsilon |y|): their Algorithm 2."""
    scale = epsilon.denominator
    while True:
        fraction = below(scale)
        if not bernoulli_exp(fraction, scale, below):
            continue
        whole = 0
        while bernoulli_exp(1, 1, below):
            whole += 1
        size = (fraction + scale * whole) // epsilon.numerator
        negative = below(2) == 1
        if negative and size == 0:
            continue  # zero must not be counted twice
        return -size if negative else size


class SecretStream:
    """Random integers that a secret and a context determine, so that a resumed run repeats them.

    The bytes are those of AES-256 in counter mode, under a key that HMAC-SHA-256 derives from the
    secret and the context. Integers are taken from them by rejection, so they are exactly uniform
    if the bytes are: nobody without the secret can tell the difference.

    Two releases with the same secret and context get the same noise, which cancels in their
    difference. So the context must name everything that the noised values depend on.

    Args:
        secret: 32 random bytes that the peer does not know.
        context: what the numbers are for, such as a purpose and digests of the inputs.
    """

    def __init__(self, secret: bytes, context: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
        key = hmac.digest(secret, _DOMAIN + context, "sha256")
        self._cipher = Cipher(AES256(key), CTR(bytes(16))).encryptor()
        self._buffer = b""
        self._used = 0

    def below(self, n: int) -> int:
        """Return the next integer of the stream, uniform on {0, ..., `n` - 1}; a `RandomBelow`."""
        if n < 1:
            raise ValueError("the upper bound must be at least 1")
        bits = (n - 1).bit_length()
        size = (bits + 7) // 8
        surplus = 8 * size - bits
        while True:
            if self._used + size > len(self._buffer):
                self._refill(size)
            end = self._used + size
            value = int.from_bytes(self._buffer[self._used : end]) >> surplus
            self._used = end
            if value < n:
                return value

    def _refill(self, size: int) -> None:
        more = self._cipher.update(bytes(max(size, _AT_ONCE)))
        self._buffer = self._buffer[self._used :] + more
        self._used = 0
