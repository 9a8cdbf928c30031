"""Sorted keyed hashes of a set of IDs on disk, to count by how many people two sets differ.

Eight bytes per ID, in files that only their owner can read. Without the key they reveal nothing
but the size; whoever has both can test whether a given person is in the set, as with the table
itself.
"""

from __future__ import annotations

import hmac
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.privacy.merkle_tree import SALT_BYTES, best_hasher
from florist.common.storage.external_sorter import sorting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from florist.common.storage.files import Storage
    from florist.common.storage.id_column import Ids

HASH_BYTES = 8
#: Memory in bytes for sorting; more hashes are sorted on disk.
SORT_MEMORY = 32_000_000
_BATCH = 1 << 14
_COMPARED = 1 << 18

Numbers = npt.NDArray[np.uint64]


def write_set_hashes(storage: Storage, name: str, ids: Ids, key: bytes) -> str:
    """Write the sorted hashes of all IDs to a file, and return its keyed digest (hexadecimal).

    Sets are equal if and only if their digests are, except with negligible probability.
    """
    salt = hmac.digest(key, b"florist/ledger/1/people", "sha256")[:SALT_BYTES]
    digest = hmac.new(key, b"florist/ledger/1/set", "sha256")
    hasher, salts = best_hasher(), np.frombuffer(salt * _BATCH, dtype=np.uint8)
    with sorting(storage, HASH_BYTES, SORT_MEMORY, len(ids)) as sorter:
        for batch in ids.batches(_BATCH):
            hashes = hasher.leaves(batch, salts[: SALT_BYTES * len(batch)])
            sorter.add(np.ascontiguousarray(hashes[:, :HASH_BYTES]))
        with storage.writing(name) as file:
            for block in sorter.blocks():
                data = np.ascontiguousarray(block).data
                file.write(data)
                digest.update(data)
    return digest.hexdigest()


def file_digest(storage: Storage, name: str, key: bytes) -> str:
    """Return the digest that `write_set_hashes` returned for this file, if it is unchanged."""
    digest = hmac.new(key, b"florist/ledger/1/set", "sha256")
    with storage.reading(name) as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def count_difference(storage: Storage, one: str, other: str) -> int:
    """Count the IDs that are in exactly one of two sets; reads both files once."""
    with storage.reading(one) as first, storage.reading(other) as second:
        return _count_difference(_blocks(first), _blocks(second))


def _blocks(file: BinaryIO) -> Iterator[Numbers]:
    while data := file.read(HASH_BYTES * _COMPARED):
        yield np.frombuffer(data, dtype=">u8").astype(np.uint64)


def _count_difference(first: Iterator[Numbers], second: Iterator[Numbers]) -> int:
    """Merge two ascending streams; what lies up to the smaller of both last values is final."""
    empty = np.empty(0, np.uint64)
    a, b = next(first, empty), next(second, empty)
    different = 0
    while len(a) and len(b):
        bound = min(a[-1], b[-1])
        in_a, in_b = (int(np.searchsorted(each, bound, side="right")) for each in (a, b))
        common = np.intersect1d(a[:in_a], b[:in_b], assume_unique=True)
        different += in_a + in_b - 2 * len(common)
        a, b = a[in_a:], b[in_b:]
        a = a if len(a) else next(first, empty)
        b = b if len(b) else next(second, empty)
    return different + len(a) + len(b) + sum(map(len, chain(first, second)))
