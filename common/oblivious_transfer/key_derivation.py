"""How hashes and secrets are kept apart: a purpose, a context and parts of unambiguous length."""

from __future__ import annotations

import hashlib
import hmac

SECRET_BYTES = 32

_PREFIX = b"florist/oblivious-transfer/1/"


def digest(purpose: str, *parts: bytes | memoryview | int) -> bytes:
    """Return SHA-256 of a purpose and parts; different arguments are hashed as different bytes.

    Integers are below 2^64.
    """
    hashed = hashlib.sha256()
    for part in _encoded(purpose, parts):
        hashed.update(part)
    return hashed.digest()


def wide_digest(purpose: str, *parts: bytes | memoryview | int) -> bytes:
    """Return SHA-512 in the same way: 64 bytes."""
    return hashlib.sha512(b"".join(_encoded(purpose, parts))).digest()


def derived(secret: bytes, purpose: str, *parts: bytes | memoryview | int) -> bytes:
    """Return 64 bytes that are independent for each purpose and parts: HMAC-SHA-512."""
    return hmac.digest(secret, b"".join(_encoded(purpose, parts)), "sha512")


def check_secret(secret: bytes) -> None:
    """Raise ValueError if this is not a secret of 32 bytes; the message does not contain it."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")


def _encoded(purpose: str, parts: tuple[bytes | memoryview | int, ...]) -> list[bytes | memoryview]:
    """Return the purpose and the parts, each of them after its length."""
    encoded: list[bytes | memoryview] = []
    for part in (_PREFIX + purpose.encode(), *parts):
        content = part.to_bytes(8, "big") if isinstance(part, int) else part
        encoded += [memoryview(content).nbytes.to_bytes(8, "big"), content]
    return encoded
