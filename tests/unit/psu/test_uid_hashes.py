"""The UIDs of the merged protocol, against hashlib, by both hashers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy.merkle_tree import (
    KernelHasher,
    PythonHasher,
    TreeHasher,
    best_hasher,
    load_kernels,
)
from florist.common.psu.uid_hashes import UID_BYTES, uid_hashes

NATIVE = load_kernels()
HASHERS: dict[str, TreeHasher] = {"python": PythonHasher(), "best": best_hasher()}
if NATIVE is not None:
    HASHERS["portable kernel"] = KernelHasher(NATIVE, accelerated=False)
    if NATIVE.sha_ni_available():
        HASHERS["accelerated kernel"] = KernelHasher(NATIVE, accelerated=True)

by_every_hasher = pytest.mark.parametrize("hasher", [None, *HASHERS.values()], ids=["", *HASHERS])


def expected(element: bytes) -> bytes:
    salt = hashlib.sha256(b"florist/uid/1").digest()[:16]
    return hashlib.sha256(b"\0" + salt + element).digest()[:16]


@by_every_hasher
@settings(max_examples=40)
@given(
    count=st.integers(0, 40),
    width=st.sampled_from([32, 256, 384]),
    seed=st.integers(0, 1000),
)
def test_uids_are_salted_hashes(
    hasher: TreeHasher | None, count: int, width: int, seed: int
) -> None:
    rows = np.random.default_rng(seed).integers(0, 256, (count, width), dtype=np.uint8)
    uids = uid_hashes(rows, hasher)
    assert uids.shape == (count, UID_BYTES)
    assert uids.flags.c_contiguous
    assert [uid.tobytes() for uid in uids] == [expected(row.tobytes()) for row in rows]


@by_every_hasher
def test_a_known_uid(hasher: TreeHasher | None) -> None:
    """Both parties must compute the same, whatever their releases."""
    elements = np.arange(32, dtype=np.uint8).reshape(1, 32)
    assert uid_hashes(elements, hasher).tobytes().hex() == "60cda8bc52646592b9130ac6e6ff4936"


@by_every_hasher
def test_the_columns_of_a_larger_array(hasher: TreeHasher | None) -> None:
    """As the completing party hashes elements that have row numbers beside them."""
    records = np.random.default_rng(1).integers(0, 256, (9, 40), dtype=np.uint8)
    uids = uid_hashes(records[:, :32], hasher)
    assert [uid.tobytes() for uid in uids] == [expected(row[:32].tobytes()) for row in records]
