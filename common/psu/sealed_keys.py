"""Keeps secret exponents across a crash without ever writing them to disk in the clear.

A party encrypts its exponents under a random key and stores the ciphertext; the key is only in the
peer's memory. So neither the disk alone nor the peer alone reveals them. A party that restarts asks
its peer, which is still running, for the key. If both have stopped, the exponents are lost, and the
union starts over.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from florist.common.groups.group import Exponent
from florist.common.psu.keys import Keys

if TYPE_CHECKING:
    from florist.common.session.alignment_result import TableName

#: Bytes of a sealing key.
KEY_BYTES = 32

_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True, repr=False)
class UnionSecrets:
    """The secrets of one union, which a party keeps in memory only."""

    token: bytes
    keys: Keys
    #: Decrypts our sealed exponents.
    own_key: bytes
    #: Decrypts the peer's; we keep it for the peer.
    peer_key: bytes

    def __repr__(self) -> str:
        return "UnionSecrets(…)"


class SecretsInMemory:
    """The secrets of a party's unions, one per table, across several attempts."""

    def __init__(self) -> None:
        self.by_table: dict[TableName, UnionSecrets] = {}

    def __repr__(self) -> str:
        return "SecretsInMemory(…)"


def new_sealing_key() -> bytes:
    """Return a random key."""
    return secrets.token_bytes(KEY_BYTES)


def seal(keys: Keys, key: bytes, token: bytes) -> bytes:
    """Return the exponents of the union `token`, encrypted under `key`."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    text = json.dumps([f"{int(k):x}" for k in (keys.first, keys.second, keys.third)])
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text.encode(), token)


def unseal(sealed: bytes, key: bytes, token: bytes) -> Keys | None:
    """Return the exponents, or None if the key, the ciphertext or the token is wrong."""
    if len(key) != KEY_BYTES or len(sealed) < _NONCE_BYTES:
        return None
    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        numbers = json.loads(ChaCha20Poly1305(key).decrypt(nonce, text, token))
    except InvalidTag:
        return None
    first, second, third = (Exponent(int(number, 16)) for number in numbers)
    return Keys(first, second, third)
