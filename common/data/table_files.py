"""Open a table that is stored as text or Parquet, and read its columns in parts.

A table is one file, or all files of a folder in the order of their names, as tools leave it that
write tables of many millions of rows.
"""

from __future__ import annotations

import difflib
import stat
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.parquet_files import parquet_schema, read_parquet
from florist.common.data.table_errors import no_rows, unreadable
from florist.common.data.text_files import TextLayout, read_text, text_column_names
from florist.common.settings.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from florist.common.settings.data import Table

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".gz")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table, with their columns."""

    #: The file, or the folder.
    path: Path
    #: At least one, all text or all Parquet. The others must have the columns of the first.
    files: tuple[Path, ...]
    #: The names of the columns, in order.
    names: list[str]
    #: The types of the columns; None for text.
    schema: pa.Schema | None
    text: TextLayout

    def batches(
        self, names: Sequence[str], rows: int, skip: int = 0
    ) -> Iterator[tuple[pa.Table, float]]:
        """Read columns in tables of `rows` rows; the last may have fewer.

        No more than a few blocks are in memory at a time.

        Args:
            names: the columns, each of which must exist once.
            rows: per table.
            skip: the number of rows to leave out at the start.

        Yields:
            A table, and approximately the fraction of all rows that has been read.

        Raises:
            ConfigurationError: the table has no rows, a file cannot be read, or a row is
                malformed (raised when that row is reached).
        """
        _check_names(self.path, self.names, names)
        return self._batches(names, rows, skip)

    def stamp(self) -> tuple[Stamp, ...]:
        """Return the state of the files, which differs once one was modified, replaced or added.

        The result is empty if a file cannot be accessed.
        """
        try:
            return tuple(Stamp.of(file) for file in _files_of(self.path))
        except (ConfigurationError, OSError):
            return ()

    def _batches(
        self, names: Sequence[str], rows: int, skip: int
    ) -> Iterator[tuple[pa.Table, float]]:
        pending: list[pa.Table] = []
        count, total, fraction = 0, 0, 0.0
        for part, fraction in self._parts(names, rows):
            total += part.num_rows
            skipped = min(skip, part.num_rows)
            skip -= skipped
            pending.append(part.slice(skipped))
            count += part.num_rows - skipped
            while count >= rows:
                joined = pa.concat_tables(pending)
                yield joined.slice(0, rows), fraction
                pending, count = [joined.slice(rows)], count - rows
        if not total:
            raise no_rows(self.path)
        if count:
            yield pa.concat_tables(pending), fraction

    def _parts(self, names: Sequence[str], rows: int) -> Iterator[tuple[pa.Table, float]]:
        """Yield the rows of all files, in parts of any size."""
        sizes = [_size(file) for file in self.files]
        total, before = sum(sizes), 0
        for file, size in zip(self.files, sizes, strict=True):
            self._check_same_columns(file, names)
            if self.schema is None:
                parts = read_text(file, names, self.text)
            else:
                parts = read_parquet(file, names, rows)
            for part, fraction in parts:
                yield part, (before + fraction * size) / total
            before += size

    def _check_same_columns(self, file: Path, names: Sequence[str]) -> None:
        """Check that a file has the columns of the first one."""
        first = self.files[0]
        if file == first:
            return
        if self.schema is None:
            _check_names(file, self.text.names or text_column_names(file, self.text), names)
            return
        schema = parquet_schema(file)
        _check_names(file, schema.names, names)
        for name in names:
            found, expected = schema.field(name).type, self.schema.field(name).type
            if found != expected:
                raise ConfigurationError(
                    f"{file}: column {quoted(name)} has type {found}, but {expected} in "
                    f"{first.name}; write all files of the folder with the same types"
                )


class Stamp(NamedTuple):
    """Identifies a version of a file."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, file: Path) -> Self:
        """Return the current stamp of a file."""
        status = file.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def open_table(table: Table) -> TableFiles:
    """Open a table of the configuration; reads only its column names and types.

    Raises:
        ConfigurationError: the table cannot be read.
    """
    known = FORMATS.get(table.format)
    names = known.header(table.id_column) if known else None
    return open_table_files(table.path, TextLayout(table.delimiter, names))


def open_table_files(path: Path, text: TextLayout) -> TableFiles:
    """Open a table; reads only its column names and types.

    Args:
        path: a file whose suffix says whether it is text or Parquet, or a folder of such files.
        text: the layout of text files.

    Raises:
        ConfigurationError: the table cannot be read.
    """
    files = _files_of(path)
    kinds = {_is_text(file): file for file in files}
    if len(kinds) > 1:
        raise ConfigurationError(
            f"{path}: contains text files (such as {kinds[True].name}) and Parquet files (such as "
            f"{kinds[False].name}); use one format for all files of a table"
        )
    if True in kinds:
        return TableFiles(path, files, text_column_names(files[0], text), None, text)
    schema = parquet_schema(files[0])
    return TableFiles(path, files, schema.names, schema, text)


def _is_text(file: Path) -> bool:
    suffix = file.suffix.lower()
    if suffix in (".parquet", *_TEXT_SUFFIXES):
        return suffix != ".parquet"
    raise ConfigurationError(
        f"{file}: the file name must end in .csv, .csv.gz or .parquet, which determines the "
        "format; text files may also end in .tsv, .txt or .gz"
    )


def _files_of(path: Path) -> tuple[Path, ...]:
    """Return the file, or the non-empty files of the folder; at least one."""
    try:
        if not path.is_dir():
            if _is_empty(path):
                raise ConfigurationError(f"{path}: is empty (0 bytes); write the table again")
            return (path,)
        # The tools that write such folders put files of their own beside the table.
        found = sorted(file for file in path.iterdir() if not file.name.startswith((".", "_")))
        files = tuple(file for file in found if not _is_empty(file))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: no such file or folder; correct `path` under `data`"
        ) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not files:
        raise ConfigurationError(
            f"{path}: the folder contains no table files; specify a file, or a folder of .csv, "
            ".csv.gz or .parquet files"
        )
    return files


def _is_empty(file: Path) -> bool:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(
            f"{file}: is not a regular file; specify a file, or a folder that contains only files"
        )
    return status.st_size == 0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise unreadable(file, error) from None


def _check_names(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Check that each wanted column exists, and exists once."""
    missing = [name for name in wanted if name not in names]
    if missing:
        similar = difflib.get_close_matches(missing[0], names, n=1)
        hint = f"did you mean {quoted(similar[0])}? " if similar else ""
        if len(names) == 1:
            hint += "is `delimiter` correct? "
        columns = "column" if len(missing) == 1 else "columns"
        raise ConfigurationError(
            f"{path}: has no {columns} {quoted_few(missing, 20)}; {hint}"
            f"it has {quoted_few(names, 20)}"
        )
    times = Counter(names)
    for name in wanted:
        if times[name] > 1:
            raise ConfigurationError(
                f"{path}: {times[name]} columns are named {quoted(name)}; rename all but one"
            )
