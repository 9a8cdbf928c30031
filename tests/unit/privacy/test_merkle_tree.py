"""The kernels against hashlib and NIST's vectors; trees and paths against their definition."""

from __future__ import annotations

import os
from hashlib import sha256
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy import merkle_tree
from florist.common.privacy.merkle_tree import (
    KernelHasher,
    LeafPath,
    MerkleTree,
    PythonHasher,
    leaf_hash,
    load_kernels,
    top_of_path,
)
from florist.common.storage.id_column import IdColumn
from tests.unit.privacy import merkle_oracle

if TYPE_CHECKING:
    from florist.common.privacy.merkle_tree import Hashes, MerkleKernels, TreeHasher

# FIPS 180-4 examples and the short messages of NIST's SHAVS; the last is a million times "a".
NIST = (
    (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (
        b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ),
    (
        b"".join(b"abcdefghijklmnopqrstu"[i : i + 8] for i in range(14)),
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
    ),
    (bytes.fromhex("d3"), "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"),
    (bytes.fromhex("bd"), "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b"),
    (
        bytes.fromhex("c98c8e55"),
        "7abc22c0ae5af26ce93dbb94433a0e0b2e119d014f8e7f65bd56c61ccccd9504",
    ),
    (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
)


@pytest.fixture(scope="module")
def native() -> MerkleKernels:
    kernels = load_kernels()
    if kernels is None:
        pytest.skip("the native kernels are not built")
    return kernels


@pytest.fixture(scope="module", params=["portable", "accelerated"])
def accelerated(request: pytest.FixtureRequest, native: MerkleKernels) -> bool:
    if request.param == "accelerated" and not native.sha_ni_available():
        pytest.skip("this CPU has no SHA instructions")
    return bool(request.param == "accelerated")


def hashes_of(leaves: int) -> list[bytes]:
    return [sha256(b"%d" % i).digest() for i in range(leaves)]


def array(hashes: list[bytes]) -> Hashes:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 32)


@pytest.mark.parametrize(("message", "digest"), NIST)
def test_known_answers(
    native: MerkleKernels, *, accelerated: bool, message: bytes, digest: str
) -> None:
    out = bytearray(32)
    native.sha256(message, out, accelerated)
    assert out.hex() == digest


def test_every_length_of_two_blocks(native: MerkleKernels, *, accelerated: bool) -> None:
    message, out = os.urandom(200), bytearray(32)
    for size in range(len(message)):
        native.sha256(message[:size], out, accelerated)
        assert out == sha256(message[:size]).digest()


def assert_leaves_as_hashlib(hasher: KernelHasher, ids: list[bytes]) -> None:
    column = IdColumn.from_bytes(ids)
    salts = np.frombuffer(os.urandom(16 * len(ids)), dtype=np.uint8)
    assert hasher.leaves(column, salts).tobytes() == PythonHasher().leaves(column, salts).tobytes()


def test_leaves_of_every_length_in_batches_of_every_size(
    native: MerkleKernels, *, accelerated: bool
) -> None:
    hasher = KernelHasher(native, accelerated=accelerated)
    for size in range(131):
        for count in range(10):
            assert_leaves_as_hashlib(hasher, [os.urandom(size) for _ in range(count)])


# The last ID whose leaf is one block, the first of two, the last of two, and the first of three.
@pytest.mark.parametrize(("short", "long"), [(20, 60), (38, 39), (0, 102), (38, 103)])
def test_every_order_of_short_and_long_leaves(
    native: MerkleKernels, *, accelerated: bool, short: int, long: int
) -> None:
    hasher = KernelHasher(native, accelerated=accelerated)
    for count in range(10):
        for sizes in product((short, long), repeat=count):
            assert_leaves_as_hashlib(hasher, [os.urandom(size) for size in sizes])


def test_many_leaves_of_mixed_lengths(native: MerkleKernels, *, accelerated: bool) -> None:
    sizes = np.random.default_rng(0).integers(0, 131, 1001)
    hasher = KernelHasher(native, accelerated=accelerated)
    assert_leaves_as_hashlib(hasher, [os.urandom(size) for size in sizes])


@pytest.mark.parametrize("count", [*range(20), 1001])
def test_nodes_in_batches_of_every_size(
    native: MerkleKernels, *, accelerated: bool, count: int
) -> None:
    children = np.frombuffer(os.urandom(64 * count), dtype=np.uint8).reshape(-1, 32)
    hasher = KernelHasher(native, accelerated=accelerated)
    assert hasher.nodes(children).tobytes() == PythonHasher().nodes(children).tobytes()


@given(ids=st.lists(st.binary(max_size=150), max_size=20), skipped=st.integers(0, 3))
@settings(deadline=None)
def test_kernel_hashes_as_hashlib(ids: list[bytes], skipped: int) -> None:
    native = load_kernels()
    if native is None:
        pytest.skip("the native kernels are not built")
    # A slice that does not start at the beginning of its buffer.
    column = IdColumn.from_bytes([b"x"] * skipped + ids).slice(skipped, skipped + len(ids))
    salts = np.frombuffer(os.urandom(16 * len(ids)), dtype=np.uint8)
    expected = PythonHasher().leaves(column, salts)
    assert [row.tobytes() for row in expected] == [
        sha256(b"\0" + salts[16 * i : 16 * i + 16].tobytes() + value).digest()
        for i, value in enumerate(ids)
    ]
    even = expected[: len(ids) & ~1]
    for accelerated in {False, native.sha_ni_available()}:
        hasher = KernelHasher(native, accelerated=accelerated)
        assert hasher.leaves(column, salts).tobytes() == expected.tobytes()
        assert hasher.nodes(even).tobytes() == PythonHasher().nodes(even).tobytes()


def test_bad_buffers(native: MerkleKernels) -> None:
    def offsets(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    for data, where, salts, out, fault in (
        (b"abc", offsets(0, 4), 16, 32, "offsets"),
        (b"abc", offsets(-1, 2), 16, 32, "offsets"),
        (b"abc", offsets(0, 2, 1), 32, 64, "offsets"),
        (b"abc", offsets(), 0, 0, "offsets"),
        (b"abc", b"1234567", 16, 32, "offsets"),
        (b"abc", offsets(0, 3), 15, 32, "salts"),
        (b"abc", offsets(0, 3), 16, 31, "out"),
        (b"abc", offsets(0, 3), 16, 64, "out"),
    ):
        with pytest.raises(ValueError, match=fault):
            native.leaf_hashes(data, where, bytes(salts), bytearray(out), False)  # noqa: FBT003
    for children, out in ((32, 32), (65, 32), (128, 32)):
        with pytest.raises(ValueError, match=r"children|out"):
            native.node_hashes(bytes(children), bytearray(out), False)  # noqa: FBT003
    with pytest.raises(ValueError, match="out"):
        native.sha256(b"", bytearray(31), False)  # noqa: FBT003
    if not native.sha_ni_available():
        with pytest.raises(RuntimeError, match="cannot run"):
            native.sha256(b"", bytearray(32), True)  # noqa: FBT003


@given(leaves=st.integers(1, 70), data=st.data())
@settings(deadline=None)
def test_tree_and_paths_as_defined(leaves: int, data: st.DataObject) -> None:
    hashes = hashes_of(leaves)
    wanted = frozenset(range(leaves))
    hasher: TreeHasher = data.draw(st.sampled_from([PythonHasher(), merkle_tree.best_hasher()]))
    tree = MerkleTree(hasher, wanted)
    # Batches of any sizes, empty ones too.
    cuts = sorted(data.draw(st.lists(st.integers(0, leaves), max_size=8)))
    for start, end in pairwise([0, *cuts, leaves]):
        tree.add(array(hashes[start:end]))
    assert tree.top() == merkle_oracle.top(hashes)
    for leaf in wanted:
        path = tree.path(leaf)
        assert list(path.siblings) == merkle_oracle.siblings(leaf, hashes)
        assert top_of_path(hashes[leaf], path) == tree.top()


def test_a_tree_of_one_leaf_is_the_leaf() -> None:
    tree = MerkleTree(wanted=frozenset({0}))
    tree.add(array(hashes_of(1)))
    assert tree.top() == hashes_of(1)[0]
    assert tree.path(0) == LeafPath(0, 1, ())


def test_no_leaves() -> None:
    with pytest.raises(ValueError, match="no top"):
        MerkleTree().top()


def test_only_wanted_leaves_have_paths() -> None:
    tree = MerkleTree(wanted=frozenset({1, 9}))
    tree.add(array(hashes_of(5)))
    for leaf in (0, 9):
        with pytest.raises(KeyError):
            tree.path(leaf)


@given(leaves=st.integers(1, 40), data=st.data())
@settings(deadline=None)
def test_wrong_paths_do_not_lead_to_the_top(leaves: int, data: st.DataObject) -> None:
    hashes = hashes_of(leaves)
    leaf = data.draw(st.integers(0, leaves - 1))
    right = LeafPath(leaf, leaves, tuple(merkle_oracle.siblings(leaf, hashes)))
    top = merkle_oracle.top(hashes)
    siblings = list(right.siblings)
    wrong = [
        LeafPath(leaf, leaves, (*siblings, bytes(32))),
        LeafPath(-1, leaves, right.siblings),
        LeafPath(leaves, leaves, right.siblings),
        LeafPath(leaf, leaves, tuple(siblings[:-1])) if siblings else LeafPath(leaf, 2, ()),
    ]
    if siblings:
        changed = data.draw(st.integers(0, len(siblings) - 1))
        damaged = bytes([siblings[changed][0] ^ 1]) + siblings[changed][1:]
        wrong.append(
            LeafPath(leaf, leaves, (*siblings[:changed], damaged, *siblings[changed + 1 :]))
        )
        wrong.append(
            LeafPath(leaf, leaves, (*siblings[:changed], b"short", *siblings[changed + 1 :]))
        )
        other = data.draw(st.integers(0, leaves - 1).filter(lambda other: other != leaf))
        wrong.append(LeafPath(other, leaves, right.siblings))
    assert all(top_of_path(hashes[leaf], path) != top for path in wrong)


def test_a_node_is_not_a_leaf() -> None:
    """The concatenation of two hashes, presented as an ID, has another hash than their node."""
    left, right = hashes_of(2)
    assert leaf_hash(left[:16], left[16:] + right) != merkle_oracle.node(left, right)
