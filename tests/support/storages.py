"""Both kinds of storage, and a set written to one, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from florist.common.psu.stored_sets import StoredSet, writing_set
from florist.common.storage.files import FolderStorage
from tests.support.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.storage.files import Storage

KINDS = ("folder", "memory")
WIDTH = 32
ROWS = np.random.default_rng(1).integers(0, 256, (40, WIDTH), dtype=np.uint8)


def make_storage(kind: str, directory: Path) -> Storage:
    """Return an empty storage of this kind."""
    return FolderStorage(directory / "work") if kind == "folder" else MemoryStorage()


def written(storage: Storage, name: str) -> StoredSet:
    """Write `ROWS` in several chunks."""
    with writing_set(storage, name) as writer:
        for start in range(0, len(ROWS), 7):
            writer.append(ROWS[start : start + 7])
    return StoredSet(storage, name, WIDTH, writer.tally.facts)
