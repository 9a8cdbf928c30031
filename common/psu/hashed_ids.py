"""Hashes a party's IDs and its padding to elements of the group; dummy IDs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.progress import StepProgress
    from florist.common.psu.executor import Executor
    from florist.common.psu.padded_set import PaddedIds
    from florist.common.storage.elements import Elements

#: IDs that are hashed between two progress reports.
BATCH = 16_384

#: A dummy is a pseudorandom string of this many bytes, which equals no real ID.
DUMMY_BYTES = 32

_CIPHER_BLOCK_BYTES = 16


@dataclass(frozen=True, slots=True)
class DummyIds:
    """The dummy IDs of a party in one union: always the same ones under the same key.

    They are the key stream of AES-256 in counter mode, which looks random without the key. All are
    distinct, because a cipher maps no two counters to the same block.
    """

    key: bytes = field(repr=False)
    count: int = field(repr=False)

    def rows(self, start: int, count: int) -> IdColumn:
        """Return `count` dummies from number `start` on."""
        blocks_each = DUMMY_BYTES // _CIPHER_BLOCK_BYTES
        counter = (start * blocks_each).to_bytes(_CIPHER_BLOCK_BYTES)
        stream = Cipher(AES256(self.key), CTR(counter)).encryptor()
        data = np.frombuffer(stream.update(bytes(count * DUMMY_BYTES)), dtype=np.uint8)
        return IdColumn(data, np.arange(count + 1, dtype=np.int64) * DUMMY_BYTES)

    def batches(self, rows: int, start: int = 0) -> Iterator[IdColumn]:
        """Yield the dummies from number `start` on, `rows` at a time."""
        for first in range(start, self.count, rows):
            yield self.rows(first, min(rows, self.count - first))


def hashed_ids(executor: Executor, padded: PaddedIds, progress: StepProgress) -> Iterator[Elements]:
    """Yield one element per ID in row order, then one per ID of the padding, in batches.

    Padding goes through every step as IDs do; afterwards its UIDs belong to nobody.
    """
    progress.expect(len(padded))
    for elements in executor.hashed(padded.batches(BATCH)):
        yield elements
        progress.advance(len(elements))
