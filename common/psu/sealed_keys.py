"""Keeps a union's secrets across a crash without ever writing them to disk in the clear.

A party encrypts its exponents, its other keys and its random draws under a random key and stores
the ciphertext; the random key is only in the peer's memory. So neither the disk alone nor the peer
alone reveals them. A party that restarts asks its peer, which is still running, for the key. If
both have stopped, the secrets are lost, and the union starts over.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from florist.common.groups.group import Exponent
from florist.common.psu.keys import CountDraws, Keys, OwnSecrets

if TYPE_CHECKING:
    from florist.common.session.alignment_result import TableName

#: Bytes of a sealing key.
KEY_BYTES = 32

_NONCE_BYTES = 12

#: Authenticated with the token; secrets that were sealed in another format cannot be unsealed.
_FORMAT = b"florist/sealed-keys/4"


@dataclass(frozen=True, slots=True, repr=False)
class UnionSecrets:
    """The secrets of one union, which a party keeps in memory only."""

    token: bytes
    own: OwnSecrets
    #: Decrypts our sealed secrets.
    own_key: bytes
    #: Decrypts the peer's; we keep it for the peer.
    peer_key: bytes

    @property
    def keys(self) -> Keys:
        return self.own.keys

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


def seal(own: OwnSecrets, key: bytes, token: bytes) -> bytes:
    """Return the secrets of the union `token`, encrypted under `key`."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    exponents = astuple(own.keys)
    parts = [
        [f"{int(each):x}" for each in exponents],
        own.dummy_key.hex(),
        own.commitment_key.hex(),
        own.draws.dummies,
        own.draws.chosen,
    ]
    text = json.dumps(parts)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text.encode(), _FORMAT + token)


def unseal(sealed: bytes, key: bytes, token: bytes) -> OwnSecrets | None:
    """Return the secrets, or None if the key, the ciphertext, the token or the format is wrong."""
    if len(key) != KEY_BYTES or len(sealed) < _NONCE_BYTES:
        return None
    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        plain = ChaCha20Poly1305(key).decrypt(nonce, text, _FORMAT + token)
    except InvalidTag:
        return None
    exponents, dummy_key, commitment_key, dummies, chosen = json.loads(plain)
    keys = Keys(*(Exponent(int(each, 16)) for each in exponents))
    draws = CountDraws(dummies, tuple(chosen))
    return OwnSecrets(keys, bytes.fromhex(dummy_key), bytes.fromhex(commitment_key), draws)
