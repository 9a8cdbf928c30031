"""A commitment to the set that a party puts into a union: one hash, sent before the union starts.

The set has three subsets: people, dummies and pool IDs. Each has a salted Merkle tree of its own
(see `merkle_tree`) under its own key, all derived from one secret key:

    subset  SHA-256("florist/commitment/1/<subset>" || salt || top of the subset's tree)
    set     SHA-256("florist/commitment/1/set" || people || dummies || pools)

An empty subset has 32 zero bytes instead of a top. All salts are secret and pseudorandom, so the
root of a set reveals neither its IDs nor its size. The party keeps the key of the people, to open
single leaves for an auditor, and forgets the others: with them somebody could count dummies and
pool IDs, whose numbers hide the sizes.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import TypeAdapter, ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.merkle_tree import HASH_BYTES, SALT_BYTES, MerkleTree, best_hasher
from florist.common.storage.private_files import private_opener

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from florist.common.privacy.merkle_tree import TreeHasher
    from florist.common.storage.id_column import IdColumn

Subset = Literal["people", "dummies", "pools"]

KEY_BYTES = 32

#: IDs that are hashed at once.
BATCH = 1 << 14

#: Names the construction. It is part of every hash and key, and increased when either changes.
_DOMAIN = "florist/commitment/1"
_TREE = "RFC 9162, SHA-256, 16-byte salts"

ROOTS_FILE = "commitment.json"
KEY_FILE = "commitment.key"


@dataclass(frozen=True, slots=True)
class SubsetKey:
    """The secret of one subset's salts."""

    subset: Subset
    secret: bytes = field(repr=False)

    @classmethod
    def derived(cls, key: bytes, subset: Subset) -> Self:
        """Derive it from the key of the set."""
        return cls(subset, _derived(key, subset))

    def root(self, top: bytes) -> bytes:
        """Return the root of the subset whose tree has this top."""
        return subset_root(self.subset, self.root_salt, top)

    @property
    def root_salt(self) -> bytes:
        """The salt of the subset's root."""
        return _derived(self.secret, "root")

    def tree(
        self,
        ids: Iterable[IdColumn],
        wanted: frozenset[int] = frozenset(),
        hasher: TreeHasher | None = None,
    ) -> MerkleTree:
        """Hash the IDs of the subset, in order, in one pass; `wanted` are leaves to be opened."""
        tree = MerkleTree(hasher or best_hasher(), wanted)
        stream = Cipher(AES256(_derived(self.secret, "leaves")), CTR(bytes(16))).encryptor()
        for column in ids:
            for batch in column.batches(BATCH):
                salts = stream.update(bytes(SALT_BYTES * len(batch)))
                tree.add(tree.hasher.leaves(batch, np.frombuffer(salts, dtype=np.uint8)))
        return tree

    def leaf_salt(self, leaf: int) -> bytes:
        """Return the salt of one leaf."""
        secret = _derived(self.secret, "leaves")
        stream = Cipher(AES256(secret), CTR(leaf.to_bytes(16))).encryptor()
        return stream.update(bytes(SALT_BYTES))


@dataclass(frozen=True, slots=True)
class SetCommitment:
    """The roots of a set and of its subsets, and the key of the people."""

    people: bytes
    dummies: bytes
    pools: bytes
    people_key: SubsetKey = field(repr=False)

    @property
    def root(self) -> bytes:
        """The commitment to the whole set; nothing but this is sent."""
        return set_root(self.people, self.dummies, self.pools)


@dataclass(frozen=True, slots=True)
class StoredCommitment:
    """What a party keeps of a union: its own commitment and the root that the peer sent."""

    own: SetCommitment
    peer_root: bytes


def commit(
    people: Iterable[IdColumn],
    dummies: Iterable[IdColumn],
    pools: Iterable[IdColumn],
    key: bytes,
) -> SetCommitment:
    """Commit to a set in one pass over each subset, in bounded memory.

    Args:
        people: the party's own IDs, in the order of its table.
        dummies: IDs that it made up to pad its set.
        pools: the IDs of the pools that it inserts.
        key: 32 secret random bytes. The same key and set give the same commitment, so that a run
            that is resumed sends the same root.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key of a commitment has {KEY_BYTES} bytes, not {len(key)}")
    people_key = SubsetKey.derived(key, "people")
    return SetCommitment(
        people=_root(people_key, people),
        dummies=_root(SubsetKey.derived(key, "dummies"), dummies),
        pools=_root(SubsetKey.derived(key, "pools"), pools),
        people_key=people_key,
    )


def subset_root(subset: Subset, salt: bytes, top: bytes) -> bytes:
    """Return the root of a subset; `top` is that of its tree."""
    return sha256(f"{_DOMAIN}/{subset}".encode() + salt + top).digest()


def set_root(people: bytes, dummies: bytes, pools: bytes) -> bytes:
    """Return the root of a set from those of its subsets."""
    return sha256(f"{_DOMAIN}/set".encode() + people + dummies + pools).digest()


def _root(key: SubsetKey, ids: Iterable[IdColumn]) -> bytes:
    tree = key.tree(ids)
    return key.root(tree.top() if tree.leaves else bytes(HASH_BYTES))


def _derived(key: bytes, purpose: str) -> bytes:
    info = f"{_DOMAIN}/{purpose}".encode()
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key)


# --- files ---


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of `commitment.json`; hashes are hexadecimal."""

    format: str
    tree: str
    root: str
    people_root: str
    dummies_root: str
    pools_root: str
    peer_root: str


_CONTENT = TypeAdapter(_Content)


def save_commitment(folder: Path, stored: StoredCommitment) -> None:
    """Write both files into the folder of an alignment, which becomes its result as a whole.

    `commitment.json` has the roots; `commitment.key`, the key of the people, is readable only by
    its owner.
    """
    own = stored.own
    content = _Content(
        format=_DOMAIN,
        tree=_TREE,
        root=own.root.hex(),
        people_root=own.people.hex(),
        dummies_root=own.dummies.hex(),
        pools_root=own.pools.hex(),
        peer_root=stored.peer_root.hex(),
    )
    text = json.dumps(_CONTENT.dump_python(content), indent=2) + "\n"
    for name, data in ((ROOTS_FILE, text.encode()), (KEY_FILE, own.people_key.secret)):
        with open(folder / name, "wb", opener=private_opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def has_commitment(folder: Path) -> bool:
    """Whether the folder of an alignment has a commitment."""
    return (folder / ROOTS_FILE).exists()


def load_roots(folder: Path) -> tuple[bytes, bytes]:
    """Read our root and the peer's root, without the key.

    Raises:
        ConfigurationError: there is no commitment, or this release cannot read it.
    """
    content = _load(folder)
    return bytes.fromhex(content.root), bytes.fromhex(content.peer_root)


def load_commitment(folder: Path) -> StoredCommitment:
    """Read the files of a commitment.

    Raises:
        ConfigurationError: there is none, the key was deleted, or this release cannot read it.
    """
    content = _load(folder)
    path = folder / KEY_FILE
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}; without it no leaf can be opened"
        ) from None
    if len(secret) != KEY_BYTES:
        raise ConfigurationError(f"{path} is damaged; restore it")
    own = SetCommitment(
        people=bytes.fromhex(content.people_root),
        dummies=bytes.fromhex(content.dummies_root),
        pools=bytes.fromhex(content.pools_root),
        people_key=SubsetKey("people", secret),
    )
    if own.root.hex() != content.root:
        raise ConfigurationError(
            f"{folder / ROOTS_FILE} is damaged: its roots do not match; restore it"
        )
    return StoredCommitment(own, bytes.fromhex(content.peer_root))


def _load(folder: Path) -> _Content:
    path = folder / ROOTS_FILE
    try:
        content = _CONTENT.validate_json(path.read_bytes(), strict=True)
        roots = (content.root, content.people_root, content.dummies_root, content.pools_root)
        readable = all(len(bytes.fromhex(root)) == HASH_BYTES for root in roots)
        readable &= len(bytes.fromhex(content.peer_root)) == HASH_BYTES
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}; there is a commitment only after an "
            "alignment by a release that makes one"
        ) from None
    except (ValueError, ValidationError):
        raise ConfigurationError(f"{path} is damaged; restore it") from None
    if content.format != _DOMAIN or not readable:
        raise ConfigurationError(f"{path} has format {content.format[:40]!r}, not {_DOMAIN!r}")
    return content
