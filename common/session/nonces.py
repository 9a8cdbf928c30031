"""Nonces that both parties contribute: each commits to its own before it sees the peer's.

So what is derived from both is random if either party draws its nonce at random.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from florist.common.core.errors import ProtocolViolation

NONCE_BYTES = 32

_COMMITMENT = b"florist/commitment/1"


def fresh_nonce() -> bytes:
    """Draw a party's contribution."""
    return secrets.token_bytes(NONCE_BYTES)


def commitment(nonce: bytes) -> bytes:
    """Return a commitment to `nonce`, which binds and hides it.

    Raises:
        ValueError: `nonce` does not have 32 bytes.
    """
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
    return hashlib.sha256(_COMMITMENT + nonce).digest()


def check_commitment(nonce: bytes, committed: bytes) -> None:
    """Check the nonce that the peer reveals against its earlier commitment.

    Raises:
        ProtocolViolation: it is a different nonce, or not a nonce.
    """
    if len(nonce) != NONCE_BYTES:
        raise ProtocolViolation(f"the peer's nonce has {len(nonce)} bytes, not {NONCE_BYTES}")
    if not hmac.compare_digest(commitment(nonce), committed):
        raise ProtocolViolation("the peer revealed a nonce other than the one that it committed to")
