"""The UIDs of the merged protocol: truncated hashes of the elements of the union.

A hash instead of the element halves the traffic of the last step, and nothing can be computed from
it: it can only be compared. docs/concepts/merged-union.md has the probability of a collision.
"""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florist.common.privacy.merkle_tree import SALT_BYTES, TreeHasher, best_hasher
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements

#: Bytes of a UID.
UID_BYTES = 16

#: Keeps these hashes apart from all others.
_SALT = hashlib.sha256(b"florist/uid/1").digest()[:SALT_BYTES]


def uid_hashes(elements: Elements, hasher: TreeHasher | None = None) -> Elements:
    """Return the UID of each element: the first half of SHA-256(0x00 || salt || element)."""
    rows = np.ascontiguousarray(elements).reshape(-1)
    offsets, salts = _offsets_and_salts(*elements.shape)
    hashes = (hasher or _hasher()).leaves(IdColumn(rows, offsets), salts)
    return np.ascontiguousarray(hashes[:, :UID_BYTES])


@lru_cache(maxsize=4)  # chunks have few sizes
def _offsets_and_salts(
    count: int, width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return offsets, np.frombuffer(_SALT * count, dtype=np.uint8)


@cache
def _hasher() -> TreeHasher:
    return best_hasher()
