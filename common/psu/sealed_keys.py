"""How secret exponents outlive a crash of their party and still never lie on a disk in the clear.

A party seals its exponents under a random key and keeps the sealed text; the key is in the peer's
memory only. So a disk alone opens nothing, nor does the peer; a party that comes back asks its
peer, who is still there, for the key. If both have gone, the exponents are lost, and the union
begins anew.
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
    from florist.common.session.run_directory import TableName

#: Bytes of a sealing key.
KEY_BYTES = 32

_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True, repr=False)
class UnionSecrets:
    """What a party has in memory of one union, and nowhere else."""

    token: bytes
    keys: Keys
    #: Opens our sealed exponents.
    own_key: bytes
    #: Opens the peer's; kept for it.
    peer_key: bytes

    def __repr__(self) -> str:
        return "UnionSecrets(…)"


class SecretsInMemory:
    """What a party holds over several attempts at its unions, one per table."""

    def __init__(self) -> None:
        self.by_table: dict[TableName, UnionSecrets] = {}

    def __repr__(self) -> str:
        return "SecretsInMemory(…)"


def new_sealing_key() -> bytes:
    """Random."""
    return secrets.token_bytes(KEY_BYTES)


def seal(keys: Keys, key: bytes, token: bytes) -> bytes:
    """The exponents of the union `token`, readable with `key` alone."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    text = json.dumps([f"{int(k):x}" for k in (keys.first, keys.second, keys.third)])
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text.encode(), token)


def unseal(sealed: bytes, key: bytes, token: bytes) -> Keys | None:
    """The exponents; None if the key is another, or the text or the token was changed."""
    if len(key) != KEY_BYTES or len(sealed) < _NONCE_BYTES:
        return None
    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        numbers = json.loads(ChaCha20Poly1305(key).decrypt(nonce, text, token))
    except InvalidTag:
        return None
    first, second, third = (Exponent(int(number, 16)) for number in numbers)
    return Keys(first, second, third)
