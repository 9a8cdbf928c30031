"""Proofs that IDs are leaves of a committed set: made by the party, checked by an auditor.

An auditor either names IDs, or has leaves drawn at random by a challenge that the party does not
know in advance. The last leaf is always among those drawn: its path proves how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter, ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import printable
from florist.common.privacy.commitment import set_root, subset_root
from florist.common.privacy.merkle_tree import HASH_BYTES, SALT_BYTES, LeafPath, top_of_path
from florist.common.privacy.merkle_tree import leaf_hash as hash_of_leaf
from florist.common.storage.id_column import IdColumn, quick_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from florist.common.privacy.commitment import StoredCommitment

_FORMAT = "florist/commitment-proof/1"


class WrongProof(Exception):  # noqa: N818 - the verdict of a check
    """The proof does not prove what it claims; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class OpenedLeaf:
    """One leaf with its path; bytes are hexadecimal."""

    #: The exact bytes of the normalised ID.
    id: str
    leaf: int
    salt: str
    siblings: list[str]


@dataclass(frozen=True, slots=True)
class CommitmentProof:
    """Leaves of the people of a set, and what leads from their tree to the root of the set."""

    format: str
    #: The number of people. The peer must not learn it.
    leaves: int
    people_salt: str
    dummies_root: str
    pools_root: str
    #: The challenge that the leaves were drawn with, and how many were drawn; empty and 0 if the
    #: auditor named IDs.
    challenge: str
    drawn: int
    opened: list[OpenedLeaf]

    def to_json(self) -> bytes:
        return _PROOF.dump_json(self, indent=2) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> CommitmentProof:
        """Read a proof.

        Raises:
            WrongProof: it is not one that this release can read.
        """
        try:
            proof = _PROOF.validate_json(data, strict=True)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"]))
            raise WrongProof(f"it is not a proof: {where or 'JSON'}: {problem['msg']}") from None
        if proof.format != _FORMAT:
            raise WrongProof(f"its format is {proof.format[:40]!r}, not {_FORMAT!r}")
        return proof


_PROOF = TypeAdapter(CommitmentProof)


def open_ids(
    stored: StoredCommitment, people: Callable[[], Iterable[IdColumn]], ids: list[bytes]
) -> CommitmentProof:
    """Prove that these IDs are among the people of the set.

    `people` reads the people of the set again, in the order in which they were committed.

    Raises:
        ConfigurationError: an ID is not among them, or they are not the ones of the commitment.
    """
    leaf_of = dict.fromkeys(ids, -1)
    quick = quick_digests(IdColumn.from_bytes(leaf_of))
    first = 0
    for column in people():
        for row in np.flatnonzero(np.isin(quick_digests(column), quick)).tolist():
            if (value := column.at(row)) in leaf_of:
                leaf_of[value] = first + row
        first += len(column)
    missing = sum(leaf < 0 for leaf in leaf_of.values())
    if missing:
        raise ConfigurationError(
            f"{missing} of the {len(leaf_of)} IDs are not among the people of this set; a "
            "commitment cannot prove that somebody is absent"
        )
    return _opened(stored, people, set(leaf_of.values()))


def open_drawn(
    stored: StoredCommitment,
    people: Callable[[], Iterable[IdColumn]],
    challenge: str,
    number: int,
) -> CommitmentProof:
    """Open `number` leaves that are drawn by an auditor's challenge, and the last leaf.

    Raises:
        ConfigurationError: the set is empty, or `people` are not the ones of the commitment.
    """
    leaves = sum(len(column) for column in people())
    if not leaves:
        raise ConfigurationError("the set has no people: there is nothing to open")
    return _opened(stored, people, drawn_leaves(challenge, number, leaves), challenge, number)


def drawn_leaves(challenge: str, number: int, leaves: int) -> set[int]:
    """Return `number` different leaves, or all if there are fewer, and the last one."""
    drawn: set[int] = set()
    for i in count():
        if len(drawn) >= min(number, leaves):
            break
        digest = sha256(f"{_FORMAT}/challenge/{i}/{challenge}".encode()).digest()
        drawn.add(int.from_bytes(digest) % leaves)  # the bias is below 2^-190
    return drawn | {leaves - 1}


def check_proof(proof: CommitmentProof, root: bytes) -> list[bytes]:
    """Check a proof against the root that the peer received before the union.

    Returns the proven IDs, in the order of the proof.

    Raises:
        WrongProof: says which leaf is wrong, or what else.
    """
    if not proof.opened:
        raise WrongProof("it opens no leaf")
    dummies, pools = _bytes(proof.dummies_root, HASH_BYTES), _bytes(proof.pools_root, HASH_BYTES)
    people_salt = _bytes(proof.people_salt, HASH_BYTES)
    proven = []
    for opened in proof.opened:
        value, salt = _bytes(opened.id), _bytes(opened.salt, SALT_BYTES)
        siblings = tuple(_bytes(sibling, HASH_BYTES) for sibling in opened.siblings)
        path = LeafPath(opened.leaf, proof.leaves, siblings)
        top = top_of_path(hash_of_leaf(salt, value), path)
        if top is None:
            raise WrongProof(f"leaf {opened.leaf}: a tree of {proof.leaves} has no such path")
        if set_root(subset_root("people", people_salt, top), dummies, pools) != root:
            raise WrongProof(f"leaf {opened.leaf}: its path does not lead to the root")
        proven.append(value)
    _check_drawn(proof)
    return proven


def require_challenge(proof: CommitmentProof, challenge: str, number: int) -> None:
    """Check that the leaves are said to be drawn by this challenge; `check_proof` checks the rest.

    Raises:
        WrongProof: they are not.
    """
    if (proof.challenge, proof.drawn) != (challenge, number):
        raise WrongProof(
            f"it says that {proof.drawn} leaves were drawn by the challenge "
            f"{printable(proof.challenge, 80)!r}"
        )


def _check_drawn(proof: CommitmentProof) -> None:
    if not proof.drawn:
        return
    opened = {leaf.leaf for leaf in proof.opened}
    if proof.drawn < 0:
        raise WrongProof(f"{proof.drawn} leaves cannot be drawn")
    if proof.drawn > len(opened) and len(opened) < proof.leaves:
        raise WrongProof(f"{proof.drawn} leaves should be drawn, but {len(opened)} are opened")
    if opened != drawn_leaves(proof.challenge, proof.drawn, proof.leaves):
        raise WrongProof("the opened leaves are not those that the challenge draws")


def _opened(
    stored: StoredCommitment,
    people: Callable[[], Iterable[IdColumn]],
    leaves: set[int],
    challenge: str = "",
    drawn: int = 0,
) -> CommitmentProof:
    key = stored.own.people_key
    found: dict[int, bytes] = {}
    wanted = np.array(sorted(leaves), dtype=np.int64)

    def keeping() -> Iterable[IdColumn]:
        first = 0
        for column in people():
            inside = wanted[(wanted >= first) & (wanted < first + len(column))]
            found.update((int(leaf), column.at(int(leaf) - first)) for leaf in inside)
            first += len(column)
            yield column

    tree = key.tree(keeping(), frozenset(leaves))
    if not tree.leaves or key.root(tree.top()) != stored.own.people:
        raise ConfigurationError(
            "these are not the people of the commitment: the table, its ID column or the "
            "normalisation has changed since the alignment; restore it"
        )
    opened = [
        OpenedLeaf(
            id=found[leaf].hex(),
            leaf=leaf,
            salt=key.leaf_salt(leaf).hex(),
            siblings=[sibling.hex() for sibling in tree.path(leaf).siblings],
        )
        for leaf in sorted(leaves)
    ]
    return CommitmentProof(
        format=_FORMAT,
        leaves=tree.leaves,
        people_salt=key.root_salt.hex(),
        dummies_root=stored.own.dummies.hex(),
        pools_root=stored.own.pools.hex(),
        challenge=challenge,
        drawn=drawn,
        opened=opened,
    )


def _bytes(text: str, size: int | None = None) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        raise WrongProof(f"{text[:20]!r} is not hexadecimal") from None
    if size is not None and len(value) != size:
        raise WrongProof(f"{text[:20]!r} has {len(value)} bytes, not {size}")
    return value
