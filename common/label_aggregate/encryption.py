"""Additive ElGamal encryption on ristretto255, on arrays.

With the secret key x and the public key X = x·G, the encryption of an integer v is the pair

    (r·G, r·X + v·G)  =  (r·G, (r·x + v)·G)

The holder of the secret key uses the second form, so that it multiplies only the generator. Sums of
pairs are encryptions of sums. Decryption gives v·G; `discrete_logarithm` finds v if it is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.groups.ristretto255 import ENCODED_BYTES
from florist.common.groups.ristretto255_arrays import (
    POINT_WORDS,
    add,
    decode,
    encode,
    generator,
    multiply,
    multiply_add,
    multiply_base,
    negated,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.groups.ristretto255_arrays import Base, ByteRows, Points

#: An encrypted integer: two elements.
CIPHERTEXT_BYTES = 2 * ENCODED_BYTES


def encrypted(key: bytes, randomness: ByteRows, values: npt.NDArray[np.int64]) -> ByteRows:
    """Encrypt integers with the secret key.

    Args:
        key: the secret key, a scalar.
        randomness: a uniform scalar for each value, used for nothing else: (n, 32).
        values: (n,).

    Returns:
        (n, 64).
    """
    out = np.empty((len(values), CIPHERTEXT_BYTES), dtype=np.uint8)
    base = generator()
    out[:, :ENCODED_BYTES] = encode(multiply_base(base, randomness))
    masked = multiply_add(randomness, key, values)
    out[:, ENCODED_BYTES:] = encode(multiply_base(base, masked))
    return out


def decoded_pairs(ciphertexts: ByteRows, what: str) -> Points:
    """Decode ciphertexts to pairs of points: (n, 64) to (n, 2, 20).

    Raises:
        ProtocolViolation: one is not a pair of valid encodings; `what` names them.
    """
    points = decoded(ciphertexts.reshape(-1, ENCODED_BYTES), what)
    return points.reshape(-1, 2, POINT_WORDS)


def decoded(elements: ByteRows, what: str) -> Points:
    """Decode elements: (n, 32) to (n, 20).

    Raises:
        ProtocolViolation: one is not a valid encoding; `what` names them.
    """
    points, valid = decode(elements)
    if not valid.all():
        raise ProtocolViolation(f"{what}: not valid elements of the group")
    return points


def decrypted(key: bytes, pairs: Points) -> Points:
    """Return v·G for each encryption of v, as points: (n, 2, 20) to (n, 20)."""
    minus_key = negated(np.frombuffer(key, dtype=np.uint8).reshape(1, -1)).tobytes()
    return add(pairs[:, 1], multiply(pairs[:, 0], minus_key))


def blinded(pairs: Points, public_key: Base, fresh: ByteRows, masks: ByteRows) -> Points:
    """Add encryptions of masks to encryptions: (n, 2, 20).

    If `fresh` and `masks` are uniform and independent, the result is a uniform pair of elements,
    whatever the pairs and the public key are.

    Args:
        pairs: (n, 2, 20).
        public_key: X.
        fresh: the randomness of the encryptions that are added: (n, 32).
        masks: their plaintexts: (n, 32).
    """
    out = np.empty_like(pairs)
    out[:, 0] = add(pairs[:, 0], multiply_base(generator(), fresh))
    masked = add(multiply_base(public_key, fresh), multiply_base(generator(), masks))
    out[:, 1] = add(pairs[:, 1], masked)
    return out
