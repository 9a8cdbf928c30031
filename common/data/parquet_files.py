"""Read a Parquet file in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from florist.common.data.table_errors import expands_too_much, expansion_limit, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Read buffer per column.
_BUFFER_BYTES = 1 << 18

#: Rows that are decoded at once, before their real size is checked.
_ROWS_AT_ONCE = 1 << 13


def parquet_schema(path: Path) -> pa.Schema:
    """Return the column names and types.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        with parquet.ParquetFile(str(path)) as file:
            return file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


def read_parquet(path: Path, names: Sequence[str], rows: int) -> Iterator[tuple[pa.Table, float]]:
    """Yield parts of at most `rows` rows, and the fraction of the file read so far.

    Raises:
        ConfigurationError: the file cannot be read, or it expands to too many bytes, by the sizes
            that it declares or by those of the values read so far.
    """
    try:
        # With small buffers. By default whole row groups of all columns are read into memory.
        with parquet.ParquetFile(str(path), buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            limit = _Expansion(path)
            limit.check(_declared_bytes(file.metadata))
            done, total, decoded = 0, file.metadata.num_rows, 0
            for batch in file.iter_batches(min(rows, _ROWS_AT_ONCE), columns=list(names)):
                done += batch.num_rows
                # The declared sizes may be wrong, and a dictionary expands further.
                decoded += batch.nbytes
                limit.check(decoded)
                # A name with a dot also matches a nested column; `select` drops that again.
                yield pa.Table.from_batches([batch]).select(list(names)), done / total
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


def _declared_bytes(metadata: parquet.FileMetaData) -> int:
    """Return the size of all pages after decompression, according to the file."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return sum(group.total_byte_size for group in groups)


class _Expansion:
    """The limit to which a file may expand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_bytes = path.stat().st_size
        self._limit = expansion_limit(self._file_bytes)

    def check(self, expanded: int) -> None:
        """Refuse the file if it expands to this many bytes, and that is too much."""
        if expanded > self._limit:
            fix = "if it is the right file, write it again without compression"
            raise expands_too_much(self._path, self._file_bytes, fix)
