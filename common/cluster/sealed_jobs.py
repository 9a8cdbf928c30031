"""Jobs for a worker and their answers as bytes, encrypted so that only the two ends can read them.

A worker on a cluster is reached through machinery that stores what passes through it: task
descriptions, object stores, their files on disk, connections between machines. None of these has
the keys: both ends generate an X25519 key for each session, in memory, and derive one AES-256-GCM
key per direction.

Nonces are random: with 96 bits, the chance of a collision under one key is below 2^-32 for fewer
than 2^32 messages, and a session has thousands.
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
#: The kind of job and its parameters, after the data, so that the data are aligned in memory.
_TRAILER = struct.Struct("<BIH")


class UnsealError(Exception):
    """The bytes were sealed by or for someone else, for another job, or changed in transit."""


class Kind(IntEnum):
    """The kind of a job."""

    HASH = 1
    RAISE = 2
    CHECK_AND_RAISE = 3
    SORT = 4


class Outcome(IntEnum):
    """The last byte of an answer; the result or the error message precedes it."""

    DONE = 1
    #: The peer's elements are invalid.
    VIOLATION = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work for a worker."""

    kind: Kind
    #: The bytes of a row; for IDs, how many there are.
    number: int
    #: Concatenated, these are the data.
    payload: Sequence[Buffer] = field(repr=False)
    #: The secret exponent, for the kinds that raise.
    exponent: int = field(default=0, repr=False)

    def to_bytes(self) -> bytes:
        exponent = self.exponent.to_bytes(-(-self.exponent.bit_length() // 8))
        trailer = _TRAILER.pack(self.kind, self.number, len(exponent))
        return b"".join((*self.payload, exponent, trailer))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the job; its payload is a view of `data`."""
        end = len(data) - _TRAILER.size
        kind, number, length = _TRAILER.unpack_from(data, end)
        exponent = int.from_bytes(data[end - length : end])
        return cls(Kind(kind), number, [memoryview(data)[: end - length]], exponent)


class KeyExchange:
    """Our half of a key exchange, for one session."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def as_driver(self, worker: bytes) -> SealedSession:
        """Return the session with the worker that has this public key."""
        to_worker, to_driver = self._keys(worker, self.public + worker)
        return SealedSession(to_worker, to_driver)

    def as_worker(self, driver: bytes) -> SealedSession:
        """Return the session with the driver that has this public key."""
        to_worker, to_driver = self._keys(driver, driver + self.public)
        return SealedSession(to_driver, to_worker)

    def _keys(self, other: bytes, both: bytes) -> tuple[bytes, bytes]:
        shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        derive = HKDF(SHA256(), 2 * _KEY_BYTES, salt=None, info=b"florist/sealed-jobs/2" + both)
        keys = derive.derive(shared)
        return keys[:_KEY_BYTES], keys[_KEY_BYTES:]


class SealedSession:
    """Seals messages to the other end and opens messages from it; safe to use from many threads."""

    def __init__(self, sending: bytes, receiving: bytes) -> None:
        self._sending = AESGCM(sending)
        self._receiving = AESGCM(receiving)

    def seal(self, plain: bytes, answers: bytes = b"") -> bytes:
        """Return the sealed bytes, nonce first; `answers` is the sealed message they reply to."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._sending.encrypt(nonce, plain, answers[:NONCE_BYTES])

    def open(self, sealed: bytes, answers: bytes = b"") -> bytes:
        """Return what the other end sealed as a reply to `answers`.

        Raises:
            UnsealError: the other end did not seal it as that.
        """
        nonce, rest = sealed[:NONCE_BYTES], memoryview(sealed)[NONCE_BYTES:]
        try:
            return self._receiving.decrypt(nonce, rest, answers[:NONCE_BYTES])
        except (InvalidTag, ValueError):
            raise UnsealError("sealed bytes cannot be opened") from None
