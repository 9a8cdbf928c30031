"""What goes to a worker and comes back: bytes, sealed for that worker alone.

A worker on a cluster is reached through machinery that keeps what passes: task descriptions, object
stores, their files on disk, lines between machines. None of these has the keys: both ends make an
X25519 key for each introduction, in memory, and agree on one AES-256-GCM key for each way.

Nonces are random: with 96 bits, two under one key are alike with a chance below 2^-32 as long as
there are fewer than 2^32, and a conversation has thousands.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.utils import Buffer

NONCE_BYTES = 12
_KEY_BYTES = 32
#: What is to be done, behind the data: so these begin where numbers may begin in memory.
_TRAILER = struct.Struct("<BIH")


class UnsealError(Exception):
    """Sealed by someone else, for someone else, for another job, or changed on its way."""


class Kind(IntEnum):
    """What there is to do."""

    HASH = 1
    RAISE = 2
    CHECK_AND_RAISE = 3
    SORT = 4


class Outcome(IntEnum):
    """The last byte of an answer; before it is the result, or a sentence."""

    DONE = 1
    #: The peer's elements are not what they must be.
    VIOLATION = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work."""

    kind: Kind
    #: Bytes of a row; of IDs, how many there are.
    number: int
    #: One after the other, they are the data.
    payload: Sequence[Buffer] = field(repr=False)
    #: A secret, where there is one.
    exponent: int = field(default=0, repr=False)

    def to_bytes(self) -> bytes:
        exponent = self.exponent.to_bytes(-(-self.exponent.bit_length() // 8))
        trailer = _TRAILER.pack(self.kind, self.number, len(exponent))
        return b"".join((*self.payload, exponent, trailer))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The payload is a view of `data`."""
        end = len(data) - _TRAILER.size
        kind, number, length = _TRAILER.unpack_from(data, end)
        exponent = int.from_bytes(data[end - length : end])
        return cls(Kind(kind), number, [memoryview(data)[: end - length]], exponent)


class KeyExchange:
    """Our half of an agreement on keys, for one conversation."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def as_driver(self, worker: bytes) -> SealedSession:
        """With the worker whose public half this is."""
        to_worker, to_driver = self._keys(worker, self.public + worker)
        return SealedSession(to_worker, to_driver)

    def as_worker(self, driver: bytes) -> SealedSession:
        """With the driver whose public half this is."""
        to_worker, to_driver = self._keys(driver, driver + self.public)
        return SealedSession(to_driver, to_worker)

    def _keys(self, other: bytes, both: bytes) -> tuple[bytes, bytes]:
        shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        derive = HKDF(SHA256(), 2 * _KEY_BYTES, salt=None, info=b"florist/sealed-jobs/2" + both)
        keys = derive.derive(shared)
        return keys[:_KEY_BYTES], keys[_KEY_BYTES:]


class SealedSession:
    """Seals what goes to the other end, opens what comes from it; safe to use from many threads."""

    def __init__(self, sending: bytes, receiving: bytes) -> None:
        self._sending = AESGCM(sending)
        self._receiving = AESGCM(receiving)

    def seal(self, plain: bytes, answers: bytes = b"") -> bytes:
        """Sealed, with its nonce in front; `answers`: the sealed bytes that it is an answer to."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._sending.encrypt(nonce, plain, answers[:NONCE_BYTES])

    def open(self, sealed: bytes, answers: bytes = b"") -> bytes:
        """What the other end sealed, as an answer to `answers`.

        Raises:
            UnsealError: it is not that.
        """
        nonce, rest = sealed[:NONCE_BYTES], memoryview(sealed)[NONCE_BYTES:]
        try:
            return self._receiving.decrypt(nonce, rest, answers[:NONCE_BYTES])
        except (InvalidTag, ValueError):
            raise UnsealError("sealed bytes cannot be opened") from None
