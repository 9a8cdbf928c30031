"""Hashes a party's IDs, and dummies if configured, to elements of the group."""

from __future__ import annotations

import secrets
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.progress import StepProgress
    from florist.common.psu.executor import Executor
    from florist.common.storage.elements import Elements
    from florist.common.storage.id_column import Ids

#: IDs that are hashed between two progress reports.
BATCH = 16_384

#: A dummy is a random string of this many bytes, which equals no real ID.
DUMMY_BYTES = 32


def hashed_with_dummies(
    executor: Executor, ids: Ids, dummies: int, progress: StepProgress
) -> Iterator[Elements]:
    """Yield one element per ID in row order, then `dummies` random ones, in batches.

    Dummies pad the set sizes that the peer learns (section 3.3 of the paper). They go through every
    step as IDs do; afterwards their UIDs belong to nobody.
    """
    progress.expect(len(ids) + dummies)
    random = (random_ids(min(BATCH, dummies - start)) for start in range(0, dummies, BATCH))
    for elements in executor.hashed(chain(ids.batches(BATCH), random)):
        yield elements
        progress.advance(len(elements))


def random_ids(count: int) -> IdColumn:
    """Return `count` strings of 256 random bits from the operating system."""
    data = np.frombuffer(secrets.token_bytes(count * DUMMY_BYTES), dtype=np.uint8)
    return IdColumn(data, np.arange(count + 1, dtype=np.int64) * DUMMY_BYTES)
