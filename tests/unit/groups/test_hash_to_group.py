from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import gmpy2  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.groups import make_group
from florist.common.groups.curve25519 import PRIME, A
from florist.common.groups.hash_to_group import (
    CURVE_TAG,
    elligator2,
    encode_to_curve,
    expand_message,
    hash_to_curve,
    hash_to_residue,
)
from florist.common.groups.modp import PRIMES
from florist.common.storage.id_column import IdColumn
from tests.unit.groups.oracles import is_on_curve, is_square, numbers_of, times

if TYPE_CHECKING:
    from florist.common.groups.group import Group
    from florist.common.groups.parallel import Threads
    from tests.unit.groups.conftest import BatchKernels

#: RFC 9380, appendix J.4.2: message, u[0], Q.x, P.x.
RFC_9380_TAG = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"
RFC_9380_VECTORS = [
    (
        b"",
        0x608D892B641F0328523802A6603427C26E55E6F27E71A91A478148D45B5093CD,
        0x51125222DA5E763D97F3C10FCC92EA6860B9CCBBD2EB1285728F566721C1E65B,
        0x1BB913F0C9DAEFA0B3375378FFA534BDA5526C97391952A7789EB976EDFE4D08,
    ),
    (
        b"abc",
        0x46F5B22494BFEAA7F232CC8D054BE68561AF50230234D7D1D63D1D9ABECA8DA5,
        0x7D56D1E08CB0CCB92BAF069C18C49BB5A0DCD927EFF8DCF75CA921EF7F3E6EEB,
        0x7C22950B7D900FA866334262FCAEA47A441A578DF43B894B4625C9B450F9A026,
    ),
    (
        b"abcdef0123456789",
        0x235FE40C443766CE7E18111C33862D66C3B33267EFA50D50F9E8E5D252A40AAA,
        0x3FBE66B9C9883D79E8407150E7C2A1C8680BEE496C62FABE4619A72B3CABE90F,
        0x31AD08A8B0DEEB2A4D8B0206CA25F567AB4E042746F792F4B7973F3AE2096C52,
    ),
    (
        b"q128_" + b"q" * 128,
        0x001E92A544463BDA9BD04DDBE3D6EED248F82DE32F522669EFC5DDCE95F46F5B,
        0x227E0BB89DE700385D19EC40E857DB6E6A3E634B1C32962F370D26F84FF19683,
        0x027877759D155B1997D0D84683A313EB78BDB493271D935B622900459D52CEAA,
    ),
    (
        b"a512_" + b"a" * 512,
        0x1A68A1AF9F663592291AF987203393F707305C7BAC9C8D63D6A729BDC553DC19,
        0x3BCD651EE54D5F7B6013898AAB251EE8ECC0688166FCE6E9548D38472F6BD196,
        0x5FD892C0958D1A75F54C3182A18D286EFAB784E774D1E017BA2FB252998B5DC1,
    ),
]


@pytest.mark.parametrize(("message", "number", "q", "p"), RFC_9380_VECTORS)
def test_rfc_9380(message: bytes, number: int, q: int, p: int) -> None:
    assert int.from_bytes(expand_message(message, RFC_9380_TAG)) % PRIME == number
    assert elligator2(number) == q
    assert encode_to_curve(message, RFC_9380_TAG) == q
    assert times(8, q) == p


def test_rfc_9380_in_bulk(threads: Threads) -> None:
    ids = IdColumn.from_bytes([message for message, *_ in RFC_9380_VECTORS])
    assert numbers_of(hash_to_curve(ids, RFC_9380_TAG, threads)) == [
        q for _, _, q, _ in RFC_9380_VECTORS
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=20), st.binary(min_size=1, max_size=255))
def test_the_kernels_agree_with_the_rfc_as_written(
    batch: BatchKernels, ids: list[bytes], tag: bytes
) -> None:
    column = IdColumn.from_bytes(ids)
    uniform = np.empty((len(ids), 48), np.uint8)
    out = np.empty((len(ids), 32), np.uint8)
    batch.expand(column.data, column.offsets, tag, uniform)
    batch.map_to_curve(uniform, out)
    assert numbers_of(out) == [encode_to_curve(value, tag) for value in ids]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=70), min_size=8, max_size=30))
def test_short_ids_under_our_tag(threads: Threads, ids: list[bytes]) -> None:
    """Most are hashed in parallel lanes; some are too long for that."""
    assert numbers_of(hash_to_curve(IdColumn.from_bytes(ids), CURVE_TAG, threads)) == [
        encode_to_curve(value, CURVE_TAG) for value in ids
    ]


@pytest.mark.parametrize("spread", [1, 8])
def test_every_length_of_message(batch: BatchKernels, spread: int) -> None:
    # All positions of the padding relative to SHA-512's blocks, in both hashes.
    # Eight of the same length in a row, and of different lengths.
    messages = [bytes(range(256))[:length] for length in range(257) for _ in range(spread)]
    ids = IdColumn.from_bytes(messages)
    out = np.empty((len(messages), 48), np.uint8)
    for tag in (b"t", CURVE_TAG, bytes(45), bytes(46), bytes(47), bytes(255)):
        batch.expand(ids.data, ids.offsets, tag, out)
        assert [row.tobytes() for row in out] == [expand_message(m, tag) for m in messages]


def test_the_map_at_the_limits_of_the_field(batch: BatchKernels) -> None:
    edges = [
        multiple * PRIME + delta
        for multiple in (0, 1, 2, 2**128, (2**384 - 1) // PRIME - 1)
        for delta in (0, 1, 2, PRIME // 2, PRIME - 2, PRIME - 1)
    ] + [2**384 - 1, 2**192, 2**192 - 1, 2**255, 2**255 - 1]
    uniform = np.frombuffer(b"".join(edge.to_bytes(48) for edge in edges), np.uint8)
    out = np.empty((len(edges), 32), np.uint8)
    batch.map_to_curve(uniform, out)
    assert numbers_of(out) == [elligator2(edge % PRIME) for edge in edges]


@pytest.mark.parametrize("count", [*range(1, 41), 127, 128, 129, 255, 256, 257, 600])
def test_the_map_of_any_number_of_ids(batch: BatchKernels, count: int) -> None:
    uniform = np.frombuffer(os.urandom(48 * count), np.uint8).reshape(count, 48)
    out = np.empty((count, 32), np.uint8)
    batch.map_to_curve(uniform, out)
    assert numbers_of(out) == [elligator2(int.from_bytes(row.tobytes()) % PRIME) for row in uniform]


@given(st.integers(0, PRIME - 1))
def test_the_map_reaches_the_curve_and_can_be_inverted(number: int) -> None:
    u = elligator2(number)
    if number == 0:
        assert u == 0
        return
    assert is_on_curve(u)
    # u is -A/(1 + 2r²), or -A minus that: two candidates for r², one of which is right.
    squares = [
        (-A * pow(x, -1, PRIME) - 1) * pow(2, -1, PRIME) % PRIME for x in (u, (-A - u) % PRIME)
    ]
    assert number * number % PRIME in [square for square in squares if is_square(square)]


def test_slices_and_order(threads: Threads) -> None:
    values = [b"id-%d" % (i % 7000) for i in range(9001)]
    ids = IdColumn.from_bytes(values)
    hashed = hash_to_curve(ids, CURVE_TAG, threads)
    np.testing.assert_array_equal(hashed[7000:9001], hashed[:2001])
    np.testing.assert_array_equal(
        hash_to_curve(ids.slice(100, 200), CURVE_TAG, threads), hashed[100:200]
    )
    some = (0, 1, 4095, 4096, 6999)
    assert [numbers_of(hashed)[i] for i in some] == [
        encode_to_curve(values[i], CURVE_TAG) for i in some
    ]


def test_our_tag_keeps_the_second_hash_in_one_block() -> None:
    # 64 bytes of the first digest, a counter, the tag and its length, at least 17 of padding.
    assert len(CURVE_TAG) >= 16
    assert 64 + 1 + len(CURVE_TAG) + 1 + 17 <= 128


def test_hashes_never_change(group: Group) -> None:
    """Different releases must agree: these are the digests that release 0.1.0 computes."""
    ids = IdColumn.from_bytes([b"", b"alice", "Ünïcode".encode(), bytes(100)])
    digest = hashlib.sha256(group.hash_ids(ids).tobytes()).hexdigest()
    assert digest == HASHES[group.name]


HASHES = {
    "x25519": "6ac6abebb230f91777729fbe222db2b6c28c1500ff77a7fff33c16c8c47fcf15",
    "modp2048": "bf2ecd43617cf579575fe5ff19f1e98893e16fe0d2afeddd7d277835cd1e16ac",
    "modp3072": "c0f7c115eadf54039379d9ca6504fef0343bf34aae185d397f66455e8a3d8a6f",
}


def test_empty(group: Group) -> None:
    assert group.hash_ids(IdColumn.from_bytes([])).shape == (0, group.width)


@pytest.mark.parametrize("lacking", ["without_kernels", "without_ifma"])
def test_on_other_machines(request: pytest.FixtureRequest, lacking: str) -> None:
    ids = IdColumn.from_bytes([b"%d" % i for i in range(50)])
    with_kernels = make_group("x25519")
    expected = with_kernels.hash_ids(ids)
    with_kernels.close()
    request.getfixturevalue(lacking)
    without = make_group("x25519")
    np.testing.assert_array_equal(without.hash_ids(ids), expected)
    without.close()


@given(st.binary(max_size=40))
def test_residues(message: bytes) -> None:
    prime = PRIMES["modp2048"]
    residue = hash_to_residue(message, b"tag", prime)
    assert 1 < residue < prime
    assert gmpy2.jacobi(residue, prime) == 1


def test_tag_and_message_are_separated() -> None:
    prime = PRIMES["modp2048"]
    assert hash_to_residue(b"bc", b"a", prime) != hash_to_residue(b"c", b"ab", prime)
    assert encode_to_curve(b"bc", b"a") != encode_to_curve(b"c", b"ab")
