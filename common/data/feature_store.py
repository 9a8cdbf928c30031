"""Keep encoded tables in memory as long as they fit, else in memory-mapped files."""

from __future__ import annotations

import logging
import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from florist.common.data.features import Features, encoded_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    import numpy.typing as npt

    from florist.common.data.scan_table import TableScan
    from florist.common.storage.files import Storage

log = logging.getLogger("florist.data")

#: Threads that gather rows: a disk serves many requests in parallel.
_THREADS = 16
_ROWS_PER_THREAD = 512

Number = TypeVar("Number", np.float32, np.int32)


class FeatureStore:
    """Stores encoded tables. Its files are unlinked, so they disappear with this process."""

    def __init__(self, memory: int, storage: Storage) -> None:
        """Use at most `memory` bytes, and `storage` for tables that need more."""
        self.memory = memory
        self.storage = storage

    def add(self, scan: TableScan) -> Features:
        """Encode the features of a table and store them.

        Raises:
            ConfigurationError: the table was modified since the scan, or does not fit on the disk.
        """
        sizes = scan.preprocessing.sizes
        size = encoded_bytes(scan.rows, sum(sizes))
        if size <= self.memory:
            self.memory -= size
            return encode_in_memory(scan)
        self.storage.require_space(size)
        log.info("%s: storing %.1f GB of features on disk", scan.source, size / 1e9)
        return self._in_files(scan.encoded(), scan.rows, *sizes)

    def _in_files(
        self, parts: Iterable[Features], rows: int, numeric: int, categorical: int
    ) -> Features:
        with self.storage.scratch() as numbers, self.storage.scratch() as categories:
            for part in parts:
                numbers.write(part.numeric.data)
                categories.write(part.categories.data)
            return MappedFeatures(
                _mapped(numbers, np.float32, rows, numeric),
                _mapped(categories, np.int32, rows, categorical),
            )


class MappedFeatures(Features):
    """Features in memory-mapped files: pages are read from the disk on demand."""

    __slots__ = ()

    def take(self, rows: npt.NDArray[np.int64]) -> Features:
        """Copy these rows, in many threads because each may have to wait for the disk."""
        taken = Features(
            np.empty((len(rows), self.numeric.shape[1]), dtype=np.float32),
            np.empty((len(rows), self.categories.shape[1]), dtype=np.int32),
        )

        def fill(start: int) -> None:
            chunk = slice(start, start + _ROWS_PER_THREAD)
            taken.numeric[chunk] = self.numeric[rows[chunk]]
            taken.categories[chunk] = self.categories[rows[chunk]]

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="gather") as threads:
            list(threads.map(fill, range(0, len(rows), _ROWS_PER_THREAD)))
        return taken


def encode_in_memory(scan: TableScan) -> Features:
    """Encode the features of a table in memory, regardless of their size.

    Raises:
        ConfigurationError: the table was modified since the scan.
    """
    numeric, categorical = scan.preprocessing.sizes
    numbers = np.empty((scan.rows, numeric), dtype=np.float32)
    categories = np.empty((scan.rows, categorical), dtype=np.int32)
    row = 0
    for part in scan.encoded():
        numbers[row : row + len(part)] = part.numeric
        categories[row : row + len(part)] = part.categories
        row += len(part)
    assert row == scan.rows
    pa.default_memory_pool().release_unused()  # reading leaves a lot of it unused
    return Features(numbers, categories)


def _mapped(file: BinaryIO, kind: type[Number], rows: int, columns: int) -> npt.NDArray[Number]:
    """Map a file as an array: pages are read on demand and dropped under memory pressure."""
    file.flush()
    if not columns:
        return np.empty((rows, 0), dtype=kind)
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Rows are read in random order, so reading ahead is of no use.
    pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=kind).reshape(rows, columns)
