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
        ConfigurationError: the file cannot be read.
    """
    try:
        # With small buffers. By default whole row groups of all columns are read into memory.
        with parquet.ParquetFile(str(path), buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            _check_expansion(path, file.metadata)
            done, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(rows, columns=list(names)):
                done += batch.num_rows
                # A name with a dot also matches a nested column; `select` drops that again.
                yield pa.Table.from_batches([batch]).select(list(names)), done / total
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


def _check_expansion(path: Path, metadata: parquet.FileMetaData) -> None:
    """Refuse a file whose pages expand beyond the limit, by the sizes that it declares."""
    size = path.stat().st_size
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    if sum(group.total_byte_size for group in groups) > expansion_limit(size):
        fix = "if it is the right file, write it again without compression"
        raise expands_too_much(path, size, fix)
