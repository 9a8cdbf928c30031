"""Pseudorandom scalars from a secret: a function of the session, a purpose and the row."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from florist.common.groups.ristretto255_arrays import WIDE_BYTES, reduced

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.groups.ristretto255_arrays import ByteRows

SECRET_BYTES = 32

_PREFIX = b"florist/label-aggregate/1/"
_BLOCK_BYTES = 16
_BLOCKS = WIDE_BYTES // _BLOCK_BYTES
#: The absolute values of what is encrypted are below this.
VALUE_LIMIT = 1 << 60


def check_secret(secret: bytes) -> None:
    """Raise ValueError if this is not a secret of 32 bytes; the message does not contain it."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")


def derived(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """Return 64 bytes that are independent for each purpose and parts: HMAC-SHA-512."""
    encoded = b"".join(
        len(part).to_bytes(8, "big") + part for part in (_PREFIX + purpose.encode(), *parts)
    )
    return hmac.digest(secret, encoded, "sha512")


def derived_scalar(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """Return a scalar of 32 bytes; it is 0 with negligible probability."""
    wide = np.frombuffer(derived(secret, purpose, *parts), dtype=np.uint8)
    return reduced(wide.reshape(1, WIDE_BYTES)).tobytes()


def row_scalars(key: bytes, first: int, values: npt.NDArray[np.int64]) -> ByteRows:
    """Return a scalar for each row: a pseudorandom function of its number and of its value.

    Four blocks of AES-256 for each row, reduced modulo the order. Block c encrypts the row's number
    and 4 · value + c, so that no block occurs twice. Because the value is part of it, another value
    in the same row has an unrelated scalar.

    Args:
        key: 32 bytes.
        first: the number of the first row.
        values: one per row, of absolute value below `VALUE_LIMIT`.

    Returns:
        (n, 32).
    """
    blocks = np.empty((len(values), _BLOCKS, 2), dtype="<i8")
    blocks[:, :, 0] = (first + np.arange(len(values), dtype=np.int64))[:, None]
    blocks[:, :, 1] = 4 * values[:, None] + np.arange(_BLOCKS)
    # ECB of blocks that are all different is a pseudorandom function.
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305
    wide = np.frombuffer(encryptor.update(blocks.reshape(-1).view(np.uint8).data), dtype=np.uint8)
    return reduced(wide.reshape(-1, WIDE_BYTES))
