"""Hash IDs to group elements whose discrete logarithms nobody knows.

**Curve25519**: `encode_to_curve` of RFC 9380, suite curve25519_XMD:SHA-512_ELL2_NU_, with our own
domain separation tag, u-coordinate only, and without the last step, the multiplication by the
cofactor 8. That step is not needed, because every later scalar is a multiple of 8
(`curve25519.clamped`). Write the mapped point as Q = S + T, with S in the subgroup of prime order q
and T of order 1, 2, 4 or 8. A scalar that is 0 modulo 8 and ±k modulo q maps Q to ±k·S. The RFC's
output is 8·Q = 8·S, a fixed and invertible multiple of the same S: omitting the 8 changes neither
which elements are equal nor what anyone can compute.

**Modulo p**: SHAKE-256 with 128 bits more than p has, reduced modulo p, then squared.

`encode_to_curve` is written as in the RFC. The native kernels compute the same for slices of IDs,
with one inversion per block and several Legendre symbols in parallel.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import gmpy2  # type: ignore[import-untyped]
import numpy as np

from florist.common.groups import kernels
from florist.common.groups.curve25519 import PRIME, WIDTH, A, encode, right_side

if TYPE_CHECKING:
    from florist.common.groups.parallel import Threads
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import IdColumn

#: At most 45 bytes, so that the second hash of each ID is a single SHA-512 block.
CURVE_TAG = b"FLORIST-V01-curve25519_XMD:SHA-512_ELL2_NU_"

#: Bytes: 255 bits and 128 more, so that the reduction modulo p has no measurable bias.
_UNIFORM = 48
_SPARE_BITS = 128
_LARGEST_SLICE = 1 << 12


def expand_message(message: bytes, tag: bytes) -> bytes:
    """Compute `expand_message_xmd` of RFC 9380: SHA-512, 48 bytes; `tag` has at most 255 bytes."""
    suffix = tag + bytes([len(tag)])
    first = hashlib.sha512(bytes(128) + message + _UNIFORM.to_bytes(2) + b"\0" + suffix).digest()
    return hashlib.sha512(first + b"\1" + suffix).digest()[:_UNIFORM]


def elligator2(number: int) -> int:
    """Map a field element to a u-coordinate: Elligator 2 of RFC 9380, section 6.7.1, Z = 2."""
    # 1 + 2·r² is never 0, because -1/2 is not a square.
    first = -A * gmpy2.invert(1 + 2 * number * number, PRIME) % PRIME
    on_curve = gmpy2.legendre(right_side(first), PRIME) == 1
    return int(first if on_curve else (-A - first) % PRIME)


def encode_to_curve(message: bytes, tag: bytes) -> int:
    """Hash a message to the u-coordinate of Q in the RFC, before the multiplication by 8."""
    return elligator2(int.from_bytes(expand_message(message, tag)) % PRIME)


def hash_to_curve(ids: IdColumn, tag: bytes, threads: Threads) -> Elements:
    """Compute `encode_to_curve` for each ID, in order."""
    native = kernels.native
    out = np.empty((len(ids), WIDTH), dtype=np.uint8)
    if native is None:
        encoded = b"".join(encode(encode_to_curve(value, tag)) for value in ids)
        out[:] = np.frombuffer(encoded, dtype=np.uint8).reshape(-1, WIDTH)
        return out

    expand, map_to_curve = (
        (native.expand_messages_ifma, native.elligator2_map_ifma)
        if native.ifma_available()
        else (native.expand_messages, native.elligator2_map)
    )
    data = np.ascontiguousarray(ids.data)
    offsets = np.ascontiguousarray(ids.offsets, dtype=np.int64)

    def hash_slice(start: int, stop: int) -> None:
        uniform = np.empty((stop - start, _UNIFORM), dtype=np.uint8)
        expand(data, offsets[start : stop + 1], tag, uniform)
        map_to_curve(uniform, out[start:stop])

    threads.map_slices(hash_slice, len(ids), _LARGEST_SLICE)
    return out


def hash_to_residue(message: bytes, tag: bytes, prime: int) -> int:
    """Hash a message to a square modulo `prime`; `tag` has at most 255 bytes.

    The length of the tag comes first and the message last, so that different pairs of tag and
    message are hashed as different bytes.
    """
    expanded = hashlib.shake_256(bytes([len(tag)]) + tag + message).digest(
        -(-(prime.bit_length() + _SPARE_BITS) // 8)
    )
    number = int.from_bytes(expanded) % prime
    return number * number % prime
