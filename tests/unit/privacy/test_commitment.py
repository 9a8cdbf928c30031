"""Commitments to sets: what they depend on, their files, and proofs of single leaves."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.commitment import (
    StoredCommitment,
    commit,
    has_commitment,
    load_commitment,
    load_roots,
    save_commitment,
)
from florist.common.privacy.commitment_proof import (
    CommitmentProof,
    WrongProof,
    check_proof,
    drawn_leaves,
    open_drawn,
    open_ids,
)
from florist.common.psu.hashed_ids import DummyIds
from florist.common.storage.id_column import IdColumn
from tests.unit.privacy import merkle_oracle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = bytes(range(32))
PEOPLE = [f"person {i}".encode() for i in range(11)]
EMPTY = IdColumn.from_bytes([])


def column(ids: list[bytes]) -> IdColumn:
    return IdColumn.from_bytes(ids)


def batches(ids: list[bytes], size: int = 4) -> Iterator[IdColumn]:
    return column(ids).batches(size)


def derived(key: bytes, purpose: str) -> bytes:
    info = b"florist/commitment/1/" + purpose.encode()
    return HKDF(SHA256(), 32, salt=None, info=info).derive(key)


def slow_subset(key: bytes, subset: str, ids: list[bytes]) -> bytes:
    """The root of a subset, one ID at a time, from the description in the module."""
    secret = derived(key, subset)
    block = Cipher(AES256(derived(secret, "leaves")), ECB()).encryptor()
    leaves = [
        sha256(b"\0" + block.update(i.to_bytes(16)) + value).digest() for i, value in enumerate(ids)
    ]
    top = merkle_oracle.top(leaves) if leaves else bytes(32)
    return sha256(
        b"florist/commitment/1/" + subset.encode() + derived(secret, "root") + top
    ).digest()


def stored(ids: list[bytes] = PEOPLE) -> StoredCommitment:
    return StoredCommitment(commit([column(ids)], [EMPTY], [column([b"pool"])], KEY), bytes(32))


def proof_of(*ids: bytes) -> CommitmentProof:
    return open_ids(stored(), lambda: batches(PEOPLE), list(ids))


@given(
    people=st.lists(st.binary(max_size=40), max_size=20),
    pools=st.lists(st.binary(max_size=40), max_size=5),
    dummies=st.integers(0, 5),
    key=st.binary(min_size=32, max_size=32),
    size=st.integers(1, 20),
)
@settings(deadline=None)
def test_roots_as_described(
    people: list[bytes], pools: list[bytes], dummies: int, key: bytes, size: int
) -> None:
    made_up = DummyIds(bytes(32), dummies)
    found = commit(batches(people, size), made_up.batches(size), batches(pools, size), key)
    assert found.people == slow_subset(key, "people", people)
    padding = list(made_up.rows(0, dummies))
    assert found.dummies == slow_subset(key, "dummies", padding)
    assert found.pools == slow_subset(key, "pools", pools)
    parts = found.people + found.dummies + found.pools
    assert found.root == sha256(b"florist/commitment/1/set" + parts).digest()


def test_every_input_changes_the_root() -> None:
    def root(people: list[bytes], dummies: list[bytes], pools: list[bytes], key: bytes) -> bytes:
        return commit([column(people)], [column(dummies)], [column(pools)], key).root

    roots = {
        root(PEOPLE, [b"d"], [b"q"], KEY),
        root(PEOPLE, [b"d"], [b"q"], bytes(32)),
        root(PEOPLE[1:], [b"d"], [b"q"], KEY),
        root(PEOPLE[::-1], [b"d"], [b"q"], KEY),
        root(PEOPLE, [], [b"q"], KEY),
        root(PEOPLE, [b"q"], [b"d"], KEY),
        root(PEOPLE, [b"d", b"q"], [], KEY),
        root([], [], [], KEY),
        root([], [], [], bytes(32)),
    }
    assert len(roots) == 9


def test_empty_subsets_do_not_show() -> None:
    """The roots of empty subsets are salted too, and differ from each other."""
    empty, other = commit([], [], [], KEY), commit([], [], [], bytes(32))
    roots = [empty.people, empty.dummies, empty.pools, other.people, other.dummies, other.pools]
    assert len(set(roots)) == 6


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        commit([], [], [], b"short")


def test_the_key_is_not_shown() -> None:
    secret = stored().own.people_key.secret
    assert repr(secret) not in repr(stored())
    assert secret.hex() not in repr(stored())


def test_files(tmp_path: Path) -> None:
    assert not has_commitment(tmp_path)
    saved = replace(stored(), peer_root=os.urandom(32))
    save_commitment(tmp_path, saved)
    assert has_commitment(tmp_path)
    assert load_commitment(tmp_path) == saved
    assert load_roots(tmp_path) == (saved.own.root, saved.peer_root)
    files = list(tmp_path.iterdir())
    assert {path.name for path in files} == {"commitment.json", "commitment.key"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    # With the key of the set, or of another subset, somebody could count dummies and pool IDs.
    assert (tmp_path / "commitment.key").read_bytes() == derived(KEY, "people")
    assert not any(KEY.hex() in path.read_bytes().hex() for path in files)


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is a commitment only after"):
        load_roots(tmp_path)
    save_commitment(tmp_path, stored())
    path = tmp_path / "commitment.json"
    content = json.loads(path.read_text())
    for damaged in (
        "no JSON",
        json.dumps(content | {"root": "12"}),
        json.dumps(content | {"peer_root": "xy"}),
        json.dumps(content | {"format": "other"}),
        json.dumps(content | {"people_root": 7}),
        json.dumps(content | {"pools_root": "00" * 32}),
    ):
        path.write_text(damaged)
        with pytest.raises(ConfigurationError, match=r"damaged|format"):
            load_commitment(tmp_path)
    path.write_text(json.dumps(content))
    (tmp_path / "commitment.key").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="damaged"):
        load_commitment(tmp_path)
    (tmp_path / "commitment.key").unlink()
    with pytest.raises(ConfigurationError, match="no leaf can be opened"):
        load_commitment(tmp_path)


@given(count=st.integers(1, 40), data=st.data())
@settings(deadline=None)
def test_opened_ids_are_proven(count: int, data: st.DataObject) -> None:
    people = [f"person {i}".encode() for i in range(count)]
    chosen = data.draw(st.lists(st.sampled_from(people), min_size=1, unique=True))
    kept = stored(people)
    proof = open_ids(kept, lambda: batches(people), chosen)
    read = CommitmentProof.from_json(proof.to_json())
    assert read == proof
    assert set(check_proof(read, kept.own.root)) == set(chosen)


def test_proof_reveals_no_other_subset() -> None:
    proof = proof_of(PEOPLE[3])
    assert proof.leaves == len(PEOPLE)
    text = proof.to_json().decode()
    assert KEY.hex() not in text
    assert derived(KEY, "people").hex() not in text


def test_strangers_cannot_be_opened() -> None:
    with pytest.raises(ConfigurationError, match="1 of the 2 IDs"):
        proof_of(PEOPLE[0], b"stranger")


def test_another_table_is_noticed() -> None:
    with pytest.raises(ConfigurationError, match="has changed since the alignment"):
        open_ids(stored(), lambda: batches(PEOPLE[1:]), [PEOPLE[3]])
    with pytest.raises(ConfigurationError, match="nothing to open"):
        open_drawn(stored(), lambda: iter([EMPTY]), "dice", 3)


def test_wrong_proofs() -> None:
    proof, root = proof_of(PEOPLE[3], PEOPLE[7]), stored().own.root
    first, second = proof.opened
    wrong = {
        "root": (proof, bytes(32)),
        "other person": (replace(proof, opened=[replace(first, id=b"x".hex())]), root),
        "swapped salt": (replace(proof, opened=[replace(first, salt=second.salt)]), root),
        "other leaf": (replace(proof, opened=[replace(first, leaf=4)]), root),
        "no leaf": (replace(proof, opened=[]), root),
        "fewer leaves": (replace(proof, leaves=8), root),
        "not hexadecimal": (replace(proof, opened=[replace(first, id="person")]), root),
        "short salt": (replace(proof, opened=[replace(first, salt="00")]), root),
        "people salt": (replace(proof, people_salt="00" * 32), root),
        "dummies": (replace(proof, dummies_root="00" * 32), root),
        "pools": (replace(proof, pools_root="00" * 32), root),
        "second is wrong": (replace(proof, opened=[first, replace(second, id="00")]), root),
    }
    for name, (changed, against) in wrong.items():
        with pytest.raises(WrongProof):
            pytest.fail(f"accepted: {name}, {check_proof(changed, against)}")
    assert check_proof(proof, root) == [PEOPLE[3], PEOPLE[7]]


def test_malformed_proofs() -> None:
    content = json.loads(proof_of(PEOPLE[3]).to_json())
    for damaged in (b"", b"[]", b"{}", b"\xff", json.dumps(content | {"leaves": "11"}).encode()):
        with pytest.raises(WrongProof, match="not a proof"):
            CommitmentProof.from_json(damaged)
    with pytest.raises(WrongProof, match="format"):
        CommitmentProof.from_json(json.dumps(content | {"format": "other"}).encode())


@given(number=st.integers(1, 15), challenge=st.text(max_size=10))
@settings(deadline=None)
def test_drawn_leaves_are_opened(number: int, challenge: str) -> None:
    proof = open_drawn(stored(), lambda: batches(PEOPLE), challenge, number)
    assert len(check_proof(proof, stored().own.root)) >= min(number, len(PEOPLE))
    assert {leaf.leaf for leaf in proof.opened} == drawn_leaves(challenge, number, len(PEOPLE))
    assert proof.opened[-1].leaf == len(PEOPLE) - 1


def test_leaves_that_the_challenge_does_not_draw() -> None:
    proof, root = open_drawn(stored(), lambda: batches(PEOPLE), "dice", 3), stored().own.root
    for wrong in (
        replace(proof, challenge="other"),
        replace(proof, opened=proof.opened[1:]),
        replace(proof, drawn=10**9),
        replace(proof, drawn=-1),
    ):
        with pytest.raises(WrongProof, match="draw"):
            check_proof(wrong, root)
    with pytest.raises(WrongProof):  # a smaller set than the one that was committed to
        check_proof(replace(proof, leaves=len(PEOPLE) - 1), root)
