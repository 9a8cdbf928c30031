"""The 128 base transfers: random 1-of-2 oblivious transfers on ristretto255, in two messages.

The protocol is the endemic oblivious transfer of Masny and Rindal (CCS 2019) with Diffie-Hellman
key agreement, secure against malicious parties in the random-oracle model. For each transfer with
choice c the receiver draws an element R[1-c] and a scalar a, and sends R[0] and R[1] with

    R[c] = a·G - H(c, R[1-c])

Both are uniform, whatever c is, so they reveal nothing of it. The sender computes
A[j] = R[j] + H(j, R[1-j]) for both j, sends B[j] = b[j]·G with two fresh scalars, and has the seeds
KDF(j, b[j]·A[j]). The receiver computes one of them, since b[c]·A[c] = a·B[c]. The other one is a
Diffie-Hellman value of B[1-c] and an A[1-c] that the receiver could not choose: whichever of the
two values of H it computed last made the A of that value random. Fresh scalars for each seed cost a
little time, and the proof needs no more than the computational Diffie-Hellman assumption.

In the extension the roles are reversed: whoever receives here is the sender there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ProtocolViolation
from florist.common.groups.ristretto255 import ENCODED_BYTES, Element
from florist.common.groups.ristretto255_arrays import (
    WIDE_BYTES,
    elements_of,
    encode,
    generator,
    multiply_base,
    multiply_each,
    points_of,
    reduced,
)
from florist.common.oblivious_transfer.key_derivation import (
    check_secret,
    derived,
    digest,
    wide_digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from florist.common.groups.ristretto255_arrays import ByteRows

#: Base transfers: the security parameter of the extension.
TRANSFERS = 128
#: Bytes of either message: two elements for each transfer.
MESSAGE_BYTES = TRANSFERS * 2 * ENCODED_BYTES


@dataclass(frozen=True, slots=True)
class ChosenSeeds:
    """What the receiver of the base transfers has: a choice and one seed for each transfer."""

    #: Public, and equal at both parties: a digest of the session and both messages.
    context: bytes
    #: 128 times 0 or 1.
    choices: tuple[int, ...] = field(repr=False)
    seeds: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SeedPairs:
    """What the sender of the base transfers has: both seeds of each transfer."""

    #: Public, and equal at both parties: a digest of the session and both messages.
    context: bytes
    pairs: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    #: From which the extension derives its random choices; the peer does not know it.
    choice_seed: bytes = field(repr=False)


class BaseReceiver:
    """Receives the seeds; the sender of the extension has this role.

    Everything is derived from the secret and the session, so that a resumed run sends the same
    bytes. The session identifies the run and the pair of parties, and both parties have the same.
    """

    def __init__(self, secret: bytes, session: bytes) -> None:
        check_secret(secret)
        self._session = session
        bits = int.from_bytes(derived(secret, "base receiver choices", session)[: TRANSFERS // 8])
        self._choices = tuple(bits >> i & 1 for i in range(TRANSFERS))
        self._scalars = _scalars(
            derived(secret, "base receiver scalar", session, i) for i in range(TRANSFERS)
        )
        public = elements_of(multiply_base(generator(), self._scalars))
        #: The first message: two elements for each transfer.
        self.request = b"".join(
            self._offer(i, public[i], derived(secret, "base receiver element", session, i))
            for i in range(TRANSFERS)
        )

    def _offer(self, transfer: int, public: Element, uniform: bytes) -> bytes:
        choice = self._choices[transfer]
        other = Element.from_uniform(uniform).encode()
        own = public.minus(_hashed(self._session, transfer, choice, other))
        return own.encode() + other if choice == 0 else other + own.encode()

    def finish(self, reply: bytes) -> ChosenSeeds:
        """Compute the seeds from the sender's reply.

        Raises:
            ProtocolViolation: the reply does not consist of valid elements.
        """
        context = _context(self._session, self.request, reply)
        # Both of a pair are decoded, so that a wrong one is noticed whatever the choice is.
        pairs = [(_element(first), _element(second)) for first, second in _pairs(reply)]
        chosen = [pair[choice] for pair, choice in zip(pairs, self._choices, strict=True)]
        shared = encode(multiply_each(points_of(chosen), self._scalars))
        seeds = tuple(
            _seed(context, i, choice, shared[i].tobytes()) for i, choice in enumerate(self._choices)
        )
        return ChosenSeeds(context, self._choices, seeds)


class BaseSender:
    """Has both seeds of each transfer; the receiver of the extension has this role.

    Everything is derived from the secret, the session and the receiver's request.
    """

    def __init__(self, secret: bytes, session: bytes) -> None:
        check_secret(secret)
        self._secret = secret
        self._session = session

    def answer(self, request: bytes) -> tuple[bytes, SeedPairs]:
        """Return the reply to the receiver's request, and the seeds.

        Raises:
            ProtocolViolation: the request does not consist of valid elements.
        """
        agreed = [
            self._agreed(i, choice, encoded)
            for i, encoded in enumerate(_pairs(request))
            for choice in (0, 1)
        ]
        # A peer that starts again with another request meets other scalars.
        scalars = _scalars(
            derived(self._secret, "base sender scalar", self._session, request, i, j)
            for i in range(TRANSFERS)
            for j in (0, 1)
        )
        reply = encode(multiply_base(generator(), scalars)).tobytes()
        context = _context(self._session, request, reply)
        shared = encode(multiply_each(points_of(agreed), scalars))
        pairs = tuple(
            (
                _seed(context, i, 0, shared[2 * i].tobytes()),
                _seed(context, i, 1, shared[2 * i + 1].tobytes()),
            )
            for i in range(TRANSFERS)
        )
        choice_seed = derived(self._secret, "extension choices", context)[:32]
        return reply, SeedPairs(context, pairs, choice_seed)

    def _agreed(self, transfer: int, choice: int, encoded: tuple[bytes, bytes]) -> Element:
        """Return A[choice] = R[choice] + H(choice, R[1 - choice])."""
        agreed = _element(encoded[choice]).plus(
            _hashed(self._session, transfer, choice, encoded[1 - choice])
        )
        if agreed.is_identity():
            raise ProtocolViolation("a base transfer's element is the neutral one")
        return agreed


def _scalars(uniform: Iterable[bytes]) -> ByteRows:
    """Reduce 64 uniform bytes each to scalars; one is 0 with negligible probability."""
    return reduced(np.frombuffer(b"".join(uniform), dtype=np.uint8).reshape(-1, WIDE_BYTES))


def _hashed(session: bytes, transfer: int, choice: int, encoded: bytes) -> Element:
    """The random oracle H(choice, R) of a transfer, with values in the group."""
    return Element.from_uniform(
        wide_digest("base hash to group", session, transfer, choice, encoded)
    )


def _context(session: bytes, request: bytes, reply: bytes) -> bytes:
    return digest("base context", session, request, reply)


def _seed(context: bytes, transfer: int, choice: int, shared: bytes) -> bytes:
    return digest("base seed", context, transfer, choice, shared)


def _pairs(message: bytes) -> list[tuple[bytes, bytes]]:
    """Split a message into two encodings for each transfer."""
    if len(message) != MESSAGE_BYTES:
        raise ProtocolViolation(
            f"a message of the base transfers has {len(message)} bytes, not {MESSAGE_BYTES}"
        )
    parts = [message[at : at + ENCODED_BYTES] for at in range(0, MESSAGE_BYTES, ENCODED_BYTES)]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _element(encoded: bytes) -> Element:
    element = Element.decode(encoded)
    if element is None or element.is_identity():
        raise ProtocolViolation("a base transfer's element is not a valid one")
    return element
