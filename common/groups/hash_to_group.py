"""From the bytes of an ID to an element: nobody knows an element's discrete logarithm.

**Curve25519**: RFC 9380's `encode_to_curve`, suite curve25519_XMD:SHA-512_ELL2_NU_, under our own
domain separation tag, u-coordinate only, and without its last step, the multiplication by the
cofactor 8. That one is not needed, because each scalar that follows is a multiple of 8
(`curve25519.clamped`). Write the mapped point as Q = S + T, with S in the subgroup of prime order q
and T of order 1, 2, 4 or 8. A scalar that is 0 modulo 8 and ±k modulo q takes Q to ±k·S. The RFC's
output is 8·Q = 8·S, a fixed and invertible multiple of the same S: leaving the 8 out changes
neither which elements are equal nor what anyone can compute.

**Modulo p**: SHAKE-256, 128 bits more than p has, reduced, squared.

`encode_to_curve` is written as the RFC states it. The native kernels compute the same for slices
of IDs: one inversion serves a whole block, and several Legendre symbols are computed side by side.
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

#: At most 45 bytes, so that the second hash of each ID is a single block of SHA-512.
CURVE_TAG = b"FLORIST-V01-curve25519_XMD:SHA-512_ELL2_NU_"

#: 255 bits and 128 to spare, so that the reduction modulo p leaves no visible bias.
_UNIFORM = 48
_SPARE_BITS = 128
_LARGEST_SLICE = 1 << 12


def expand_message(message: bytes, tag: bytes) -> bytes:
    """RFC 9380's `expand_message_xmd` with SHA-512, 48 bytes long. `tag`: at most 255 bytes."""
    suffix = tag + bytes([len(tag)])
    first = hashlib.sha512(bytes(128) + message + _UNIFORM.to_bytes(2) + b"\0" + suffix).digest()
    return hashlib.sha512(first + b"\1" + suffix).digest()[:_UNIFORM]


def elligator2(number: int) -> int:
    """RFC 9380's map to Curve25519 (6.7.1 with Z = 2): the u-coordinate."""
    # 1 + 2·r² is never 0: -1/2 is not a square.
    first = -A * gmpy2.invert(1 + 2 * number * number, PRIME) % PRIME
    on_curve = gmpy2.legendre(right_side(first), PRIME) == 1
    return int(first if on_curve else (-A - first) % PRIME)


def encode_to_curve(message: bytes, tag: bytes) -> int:
    """The u-coordinate before the multiplication by 8 (the RFC's Q)."""
    return elligator2(int.from_bytes(expand_message(message, tag)) % PRIME)


def hash_to_curve(ids: IdColumn, tag: bytes, threads: Threads) -> Elements:
    """`encode_to_curve` of each ID, in order."""
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
    """A square modulo `prime`. `tag`: at most 255 bytes.

    The tag's length comes first, and the message goes to the end, so that different pairs of them
    are hashed as different bytes.
    """
    expanded = hashlib.shake_256(bytes([len(tag)]) + tag + message).digest(
        -(-(prime.bit_length() + _SPARE_BITS) // 8)
    )
    number = int.from_bytes(expanded) % prime
    return number * number % prime
