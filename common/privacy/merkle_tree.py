"""Salted Merkle trees over IDs: the root in one pass, paths of leaves, and their check.

The tree is that of RFC 9162, section 2.1, except that each leaf is salted:

    leaf    SHA-256(0x00 || salt || ID)         the salt has 16 bytes
    node    SHA-256(0x01 || left || right)
    tree    of n > 1 leaves: the node over the tree of the first k and that of the others, where k
            is the largest power of two below n

The first byte keeps leaves and nodes apart, so that nobody can present a node as a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from florist.common.storage.id_column import IdColumn

HASH_BYTES = 32
SALT_BYTES = 16

#: Contiguous memory; numpy's types can express this only from Python 3.12.
Bytes: TypeAlias = bytes | bytearray | npt.NDArray[np.generic]
#: One hash per row: (n, 32).
Hashes: TypeAlias = npt.NDArray[np.uint8]


class TreeHasher(Protocol):
    """The two hash functions of a tree, on whole arrays."""

    def leaves(self, ids: IdColumn, salts: npt.NDArray[np.uint8]) -> Hashes:
        """Hash each ID with its salt; `salts` has 16 bytes per ID."""
        ...

    def nodes(self, children: Hashes) -> Hashes:
        """Hash pairs: rows 0 and 1, rows 2 and 3, and so on."""
        ...


class PythonHasher:
    """By hashlib, one record at a time: slow, and the oracle for the kernel."""

    def leaves(self, ids: IdColumn, salts: npt.NDArray[np.uint8]) -> Hashes:
        each = salts.reshape(-1, SALT_BYTES)
        return _rows(
            leaf_hash(salt.tobytes(), value) for salt, value in zip(each, ids, strict=True)
        )

    def nodes(self, children: Hashes) -> Hashes:
        pairs = children.reshape(-1, 2 * HASH_BYTES)
        return _rows(sha256(b"\x01" + pair.tobytes()).digest() for pair in pairs)


class KernelHasher:
    """By the native kernel, with the SHA instructions of the CPU if it has them."""

    def __init__(self, native: MerkleKernels, *, accelerated: bool | None = None) -> None:
        self._native = native
        self._accelerated = native.sha_ni_available() if accelerated is None else accelerated

    def leaves(self, ids: IdColumn, salts: npt.NDArray[np.uint8]) -> Hashes:
        out = np.empty((len(ids), HASH_BYTES), dtype=np.uint8)
        data = np.ascontiguousarray(ids.data)
        offsets = np.ascontiguousarray(ids.offsets)
        self._native.leaf_hashes(data, offsets, salts, out, self._accelerated)
        return out

    def nodes(self, children: Hashes) -> Hashes:
        out = np.empty((len(children) // 2, HASH_BYTES), dtype=np.uint8)
        self._native.node_hashes(children, out, self._accelerated)
        return out


class MerkleKernels(Protocol):
    """The functions of the extension; `native/merkle.h` documents them."""

    def sha_ni_available(self) -> bool: ...
    def sha256(self, message: Bytes, out: Bytes, accelerated: bool, /) -> None: ...  # noqa: FBT001
    def leaf_hashes(
        self,
        data: Bytes,
        offsets: Bytes,
        salts: Bytes,
        out: Bytes,
        accelerated: bool,  # noqa: FBT001
        /,
    ) -> None: ...
    def node_hashes(self, children: Bytes, out: Bytes, accelerated: bool, /) -> None: ...  # noqa: FBT001


def load_kernels() -> MerkleKernels | None:
    """Return the native kernels; None if they were not built."""
    try:
        from florist.common.privacy import _native  # noqa: PLC0415 - the import itself may fail
    except ImportError:
        return None
    return _native


def best_hasher() -> TreeHasher:
    """Return the fastest hasher of this installation."""
    native = load_kernels()
    return PythonHasher() if native is None else KernelHasher(native)


@dataclass(frozen=True, slots=True)
class LeafPath:
    """Where a leaf is in a tree, and the hashes beside its way to the top, lowest first."""

    leaf: int
    leaves: int
    siblings: tuple[bytes, ...]


@dataclass(slots=True)
class MerkleTree:
    """A tree that grows by batches of leaves; memory O(log n), and one path per wanted leaf.

    On each level at most one node waits for its right sibling: the top of a perfect subtree.
    """

    hasher: TreeHasher = field(default_factory=best_hasher)
    #: The leaves whose paths are wanted.
    wanted: frozenset[int] = frozenset()
    leaves: int = 0
    _waiting: list[Hashes] = field(default_factory=list, repr=False)
    #: The nodes that were complete on each level.
    _nodes: list[int] = field(default_factory=list, repr=False)
    _siblings: dict[tuple[int, int], bytes] = field(default_factory=dict, repr=False)

    def add(self, hashes: Hashes) -> None:
        """Append leaves."""
        self.leaves += len(hashes)
        level = 0
        while len(hashes):
            if level == len(self._waiting):
                self._waiting.append(np.empty((0, HASH_BYTES), dtype=np.uint8))
                self._nodes.append(0)
            self._keep_siblings(level, hashes)
            self._nodes[level] += len(hashes)
            nodes = np.concatenate([self._waiting[level], hashes])
            paired = len(nodes) & ~1
            self._waiting[level] = nodes[paired:].copy()
            hashes = self.hasher.nodes(nodes[:paired])
            level += 1

    def _keep_siblings(self, level: int, hashes: Hashes) -> None:
        first = self._nodes[level]
        for leaf in self.wanted:
            sibling = (leaf >> level) ^ 1
            if first <= sibling < first + len(hashes):
                self._siblings[level, sibling] = hashes[sibling - first].tobytes()

    def top(self) -> bytes:
        """Return the hash of the whole tree.

        Raises:
            ValueError: the tree has no leaves.
        """
        if not self.leaves:
            raise ValueError("a tree without leaves has no top")
        return self._tops()[-1]

    def _tops(self) -> list[bytes]:
        """The tops of the perfect subtrees, each joined with all smaller ones; smallest first."""
        tops: list[bytes] = []
        for level in self._perfect():
            node = self._waiting[level]
            if tops:
                right = np.frombuffer(tops[-1], dtype=np.uint8).reshape(1, HASH_BYTES)
                node = self.hasher.nodes(np.concatenate([node, right]))
            tops.append(node.tobytes())
        return tops

    def _perfect(self) -> list[int]:
        """The levels of the perfect subtrees that make up the tree."""
        return [level for level, waiting in enumerate(self._waiting) if len(waiting)]

    def path(self, leaf: int) -> LeafPath:
        """Return the path of a wanted leaf, once all leaves were added.

        Raises:
            KeyError: the leaf is not in the tree, or was not wanted.
        """
        if leaf not in self.wanted or not 0 <= leaf < self.leaves:
            raise KeyError(leaf)
        perfect, tops = self._perfect(), self._tops()
        # A perfect subtree of the tree ends where the smaller ones begin.
        home = next(i for i, level in enumerate(perfect) if leaf >> level == self._nodes[level] - 1)
        inside = [self._siblings[level, (leaf >> level) ^ 1] for level in range(perfect[home])]
        smaller = [tops[home - 1]] if home else []
        larger = [self._waiting[level].tobytes() for level in perfect[home + 1 :]]
        return LeafPath(leaf, self.leaves, (*inside, *smaller, *larger))


def leaf_hash(salt: bytes, value: bytes) -> bytes:
    """Return the hash of one leaf."""
    return sha256(b"\x00" + salt + value).digest()


def top_of_path(start: bytes, path: LeafPath) -> bytes | None:
    """Return the top of the tree that a leaf hash and its path lead to (RFC 9162, 2.1.3.2).

    None if a tree with that number of leaves has no such path.
    """
    if not 0 <= path.leaf < path.leaves:
        return None
    node, position, last = start, path.leaf, path.leaves - 1
    for sibling in path.siblings:
        if last == 0 or len(sibling) != HASH_BYTES:
            return None
        if position & 1 or position == last:
            node = sha256(b"\x01" + sibling + node).digest()
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            node = sha256(b"\x01" + node + sibling).digest()
        position, last = position >> 1, last >> 1
    return node if last == 0 else None


def _rows(hashes: Iterable[bytes]) -> Hashes:
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, HASH_BYTES)
