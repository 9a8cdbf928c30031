"""Where encoded tables are: in memory while there is room, and else in files, mapped."""

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

#: That gather rows: a disk answers many requests in the time of one.
_THREADS = 16
_ROWS_PER_THREAD = 512

Number = TypeVar("Number", np.float32, np.int32)


class FeatureStore:
    """Takes tables part by part. What is in files is gone with this process, however it ends."""

    def __init__(self, memory: int, storage: Storage) -> None:
        """With so many bytes of memory, and a storage for what takes more."""
        self.memory = memory
        self.storage = storage

    def hold(self, table: TableScan) -> Features:
        """A table's features, encoded.

        Raises:
            ConfigurationError: it was changed since the scan; or it is to be in files, and the
                disk is full or will be.
        """
        sizes = table.preprocessing.sizes
        size = encoded_bytes(table.rows, sum(sizes))
        if size <= self.memory:
            self.memory -= size
            return in_memory(table)
        self.storage.require(size)
        log.info("%s: %.1f GB of features are kept on disk", table.source, size / 1e9)
        return self._in_files(table.encoded(), table.rows, *sizes)

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
    """Features in files: of a page that is not in memory, the disk is asked when it is wanted."""

    __slots__ = ()

    def take(self, rows: npt.NDArray[np.int64]) -> Features:
        """As of any features; by many threads, since each may have to wait for the disk."""
        taken = Features(
            np.empty((len(rows), self.numeric.shape[1]), dtype=np.float32),
            np.empty((len(rows), self.categories.shape[1]), dtype=np.int32),
        )

        def fill(start: int) -> None:
            some = slice(start, start + _ROWS_PER_THREAD)
            taken.numeric[some] = self.numeric[rows[some]]
            taken.categories[some] = self.categories[rows[some]]

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="gather") as threads:
            list(threads.map(fill, range(0, len(rows), _ROWS_PER_THREAD)))
        return taken


def in_memory(table: TableScan) -> Features:
    """A table's features, encoded, however much they are.

    Raises:
        ConfigurationError: it was changed since the scan_table.
    """
    numeric, categorical = table.preprocessing.sizes
    numbers = np.empty((table.rows, numeric), dtype=np.float32)
    categories = np.empty((table.rows, categorical), dtype=np.int32)
    row = 0
    for part in table.encoded():
        numbers[row : row + len(part)] = part.numeric
        categories[row : row + len(part)] = part.categories
        row += len(part)
    assert row == table.rows
    pa.default_memory_pool().release_unused()  # reading leaves a lot
    return Features(numbers, categories)


def _mapped(file: BinaryIO, kind: type[Number], rows: int, columns: int) -> npt.NDArray[Number]:
    """A file as an array: a page is read when a row on it is wanted, and dropped under pressure."""
    file.flush()
    if not columns:
        return np.empty((rows, 0), dtype=kind)
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Rows are wanted in a random order: what comes after one is of no use.
    pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=kind).reshape(rows, columns)
