"""The UIDs of the merged protocol: truncated hashes of the elements of the union.

A hash instead of the element halves the traffic of the last step, and nothing can be computed from
it: it can only be compared. docs/concepts/merged-union.md has the probability of a collision.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

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
    count, width = elements.shape
    rows = np.ascontiguousarray(elements).reshape(-1)
    column = IdColumn(rows, np.arange(count + 1, dtype=np.int64) * width)
    salts = np.frombuffer(_SALT * count, dtype=np.uint8)
    hashes = (hasher or _hasher()).leaves(column, salts)
    return np.ascontiguousarray(hashes[:, :UID_BYTES])


@cache
def _hasher() -> TreeHasher:
    return best_hasher()
