"""Text and Parquet files as Arrow columns; what is wrong with a file is told with its fix.

A table is one file, or all files of a folder, one after the other in the order of their names: so
the tools that write tables of many millions of rows leave them.
"""

from __future__ import annotations

import codecs
import difflib
import re
import stat
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa
from pyarrow import csv, parquet

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".gz")
#: The text reader's unit of work; no row can be longer.
_BLOCK_MIB = 4
#: Of each column of a Parquet file that is read part by part.
_BUFFER_BYTES = 1 << 18
_RECODE = "save the file with that encoding"


@dataclass(frozen=True, slots=True)
class TextLayout:
    """How a text file is written."""

    delimiter: str = ","
    #: The columns of a file that has no header.
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """An open door to a table: its columns are known, and can be read."""

    #: Of the file, or of the folder.
    path: Path
    #: One at least, all text or all Parquet; the others must have the columns of the first.
    files: tuple[Path, ...]
    #: The names of its columns, in their order.
    names: list[str]
    #: What its columns hold; None for text, which does not say.
    schema: pa.Schema | None
    text: TextLayout

    def read(self, names: Sequence[str]) -> pa.Table:
        """These columns, each of which must be there once; at least one row.

        A text file's come as strings just as they stand, none missing.

        Raises:
            ConfigurationError: names the file, what is wrong and the fix.
        """
        _check_names(self.path, self.names, names)
        table = pa.concat_tables([self._read(file, names) for file in self.files])
        if not table.num_rows:
            raise _no_rows(self.path)
        return table

    def batches(
        self, names: Sequence[str], rows: int, skip: int = 0
    ) -> Iterator[tuple[pa.Table, float]]:
        """As `read`, in tables of `rows` rows (the last may have fewer), without the first `skip`.

        No more than a few blocks are in memory. With each table comes the share of the whole that
        has been read, about.

        Raises:
            ConfigurationError: as `read`, when the row in question is come to.
        """
        _check_names(self.path, self.names, names)
        return _in_tables(self._stream(names, rows), rows, skip)

    def stamp(self) -> tuple[Stamp, ...]:
        """Of each file: never the same once one was written to, or replaced; none if one is gone.

        It tells of the files that are there now.
        """
        try:
            return tuple(Stamp.of(file) for file in _files_of(self.path))
        except (ConfigurationError, OSError):
            return ()

    def _read(self, file: Path, names: Sequence[str]) -> pa.Table:
        self._check_alike(file, names)
        if self.schema is None:
            return _read_text(file, names, self.text)
        return _read_parquet(file, names)

    def _stream(self, names: Sequence[str], rows: int) -> Iterator[tuple[pa.Table, float]]:
        sizes = [_size(file) for file in self.files]
        total, before = sum(sizes), 0
        for file, size in zip(self.files, sizes, strict=True):
            self._check_alike(file, names)
            if self.schema is None:
                parts = _stream_text(file, names, self.text)
            else:
                parts = _stream_parquet(file, names, rows)
            for part, share in parts:
                yield part, (before + share * size) / total
            before += size

    def _check_alike(self, file: Path, names: Sequence[str]) -> None:
        """Whether a file has what the first one has."""
        first = self.files[0]
        if file == first:
            return
        if self.schema is None:
            _check_names(file, self.text.names or _text_names(file, self.text), names)
            return
        schema = _parquet_schema(file)
        _check_names(file, schema.names, names)
        for name in names:
            ours, expected = schema.field(name).type, self.schema.field(name).type
            if ours != expected:
                raise ConfigurationError(
                    f"{file}: column {quoted(name)} holds {ours}, and {expected} in {first.name}; "
                    "write all files of the folder with the same types"
                )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise _unreadable(file, error) from None


class Stamp(NamedTuple):
    """What tells a file from another one, and from itself once it was written to."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, file: Path) -> Self:
        status = file.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def _check_names(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Whether each wanted column is there, once."""
    missing = [name for name in wanted if name not in names]
    if missing:
        near = difflib.get_close_matches(missing[0], names, n=1)
        hint = f"did you mean {quoted(near[0])}? " if near else ""
        if len(names) == 1:
            hint += "is `delimiter` right? "
        columns = "column" if len(missing) == 1 else "columns"
        raise ConfigurationError(
            f"{path}: has no {columns} {quoted_few(missing, 20)}; {hint}"
            f"it has {quoted_few(names, 20)}"
        )
    times = Counter(names)
    for name in wanted:
        if times[name] > 1:
            raise ConfigurationError(
                f"{path}: {times[name]} columns are called {quoted(name)}; rename all but one"
            )


def _in_tables(
    parts: Iterator[tuple[pa.Table, float]], rows: int, skip: int
) -> Iterator[tuple[pa.Table, float]]:
    """Of `rows` rows each, whatever the parts have."""
    kept: list[pa.Table] = []
    count, share = 0, 0.0
    for part, share in parts:
        passed = min(skip, part.num_rows)
        skip -= passed
        kept.append(part.slice(passed))
        count += part.num_rows - passed
        while count >= rows:
            whole = pa.concat_tables(kept)
            yield whole.slice(0, rows), share
            kept, count = [whole.slice(rows)], count - rows
    if count:
        yield pa.concat_tables(kept), share


def open_table(path: Path, text: TextLayout) -> TableFile:
    """Look at a table's columns.

    Args:
        path: of a file whose name tells whether it is text, laid out as `text`, or Parquet; or of a
            folder of such files.
        text: the layout.

    Raises:
        ConfigurationError: it cannot be read, and why.
    """
    files = _files_of(path)
    kinds = {_is_text(file): file for file in files}
    if len(kinds) > 1:
        raise ConfigurationError(
            f"{path}: holds text, such as {kinds[True].name}, and Parquet, such as "
            f"{kinds[False].name}; a table has files of one kind"
        )
    if True in kinds:
        return TableFile(path, files, _text_names(files[0], text), None, text)
    schema = _parquet_schema(files[0])
    return TableFile(path, files, schema.names, schema, text)


def _is_text(file: Path) -> bool:
    suffix = file.suffix.lower()
    if suffix in (".parquet", *_TEXT_SUFFIXES):
        return suffix != ".parquet"
    raise ConfigurationError(
        f"{file}: the name must end in .csv, .csv.gz or .parquet, which tells its format; text "
        "may also be .tsv, .txt or .gz"
    )


def _files_of(path: Path) -> tuple[Path, ...]:
    """The file, or those of the folder: one at least, and none is empty."""
    try:
        if not path.is_dir():
            if _is_empty(path):
                raise ConfigurationError(f"{path}: is empty (0 bytes); write the table again")
            return (path,)
        # The tools that write such folders put notes of their own beside the table.
        found = sorted(file for file in path.iterdir() if not file.name.startswith((".", "_")))
        files = tuple(file for file in found if not _is_empty(file))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: there is no such file; correct `path` under `data`"
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not files:
        raise ConfigurationError(
            f"{path}: is a folder without any file of a table in it; name a file, or a folder of "
            ".csv, .csv.gz or .parquet files"
        )
    return files


def _is_empty(file: Path) -> bool:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(
            f"{file}: is a folder or device; name a file, or a folder that has nothing but files"
        )
    return status.st_size == 0


# --- Parquet ---


def _parquet_schema(path: Path) -> pa.Schema:
    try:
        with parquet.ParquetFile(str(path)) as file:
            return file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _read_parquet(path: Path, names: Sequence[str]) -> pa.Table:
    try:
        with parquet.ParquetFile(str(path)) as file:
            # A name with a dot also selects a nested column, which `select` leaves out again.
            return file.read(columns=list(names)).select(list(names))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _stream_parquet(
    path: Path, names: Sequence[str], rows: int
) -> Iterator[tuple[pa.Table, float]]:
    try:
        # With small buffers, since else all columns of a row group are read whole.
        with parquet.ParquetFile(str(path), buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            done, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(rows, columns=list(names)):
                done += batch.num_rows
                yield pa.Table.from_batches([batch]).select(list(names)), done / total
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


# --- text ---


def _text_names(path: Path, layout: TextLayout) -> list[str]:
    try:
        with _open_text(path) as stream:
            if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise _not_utf8(path)
        with (
            _open_text(path) as stream,
            csv.open_csv(stream, _read_options(layout), _parse_options(layout)) as reader,
        ):
            names: list[str] = reader.schema.names
            return names
    except UnicodeDecodeError:
        raise _not_utf8(path, "the header") from None
    except pa.ArrowException as error:
        raise _bad_text(path, None, layout, error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _read_text(path: Path, names: Sequence[str], layout: TextLayout) -> pa.Table:
    try:
        return _text_columns(path, names, layout)
    except pa.ArrowException as error:
        raise _bad_text(path, names, layout, error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _text_columns(
    path: Path, names: Sequence[str] | None, layout: TextLayout, *, use_threads: bool = True
) -> pa.Table:
    options = _read_options(layout, use_threads=use_threads)
    with _open_text(path) as stream:
        return csv.read_csv(stream, options, _parse_options(layout), _as_strings(names))


def _as_strings(names: Sequence[str] | None) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        include_columns=names,
        column_types=dict.fromkeys(names or (), pa.string()),  # never guessed: "007" stays
        strings_can_be_null=False,  # a value may be "NA"
    )


def _stream_text(
    path: Path, names: Sequence[str], layout: TextLayout
) -> Iterator[tuple[pa.Table, float]]:
    try:
        yield from _text_blocks(path, names, layout)
    except pa.ArrowException as error:
        raise _bad_block(path, names, layout, error) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _text_blocks(
    path: Path, names: Sequence[str], layout: TextLayout, *, use_threads: bool = True
) -> Iterator[tuple[pa.Table, float]]:
    options = _read_options(layout, use_threads=use_threads)
    with (
        _raw(path) as file,
        _decompressed(file, path) as stream,
        csv.open_csv(stream, options, _parse_options(layout), _as_strings(names)) as reader,
    ):
        size = path.stat().st_size
        for blocks, batch in enumerate(reader, start=1):
            # The reader is some blocks ahead of what it gives; of a compressed file it is known
            # only how far it is.
            read = file.tell() if stream is not file else blocks * options.block_size
            yield pa.Table.from_batches([batch]), min(read / size, 1.0)


@contextmanager
def _open_text(path: Path) -> Iterator[pa.NativeFile]:
    with _raw(path) as file, _decompressed(file, path) as stream:
        yield stream


def _raw(path: Path) -> pa.NativeFile:
    """A file of Python's, which knows that it is closed.

    A reader that is not read to its end still reads ahead, in a thread of Arrow's, when its file is
    closed: from whatever has the number of Arrow's own kind of file then.
    """
    return pa.PythonFile(path.open("rb", buffering=0), mode="r")


def _decompressed(file: pa.NativeFile, path: Path) -> pa.NativeFile:
    return pa.CompressedInputStream(file, "gzip") if path.suffix.lower() == ".gz" else file


def _read_options(layout: TextLayout, *, use_threads: bool = True) -> csv.ReadOptions:
    return csv.ReadOptions(
        use_threads=use_threads, block_size=_BLOCK_MIB << 20, column_names=layout.names
    )


def _parse_options(layout: TextLayout) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True)


# --- what is wrong, for the operator ---


def _bad_text(
    path: Path, names: Sequence[str] | None, layout: TextLayout, error: pa.ArrowException
) -> ConfigurationError:
    """From the reader's message, which also quotes the row."""
    problem = str(error)
    # Only the reader without threads can tell the row.
    try:
        _text_columns(path, names, layout, use_threads=False)
    except (pa.ArrowException, OSError) as slower:
        problem = str(slower)
    return _explained(path, layout, problem)


def _bad_block(
    path: Path, names: Sequence[str], layout: TextLayout, error: pa.ArrowException
) -> ConfigurationError:
    """As `_bad_text`, of a file that may be larger than memory."""
    problem = str(error)
    try:
        for _ in _text_blocks(path, names, layout, use_threads=False):
            pass
    except (pa.ArrowException, OSError) as slower:
        problem = str(slower)
    return _explained(path, layout, problem)


def _explained(path: Path, layout: TextLayout, problem: str) -> ConfigurationError:
    row = re.search(r"Row #(\d+)", problem)
    header = "" if layout.names else " (the header is row 1)"
    where = f"row {int(row[1]):,}{header}" if row else "a row"
    if "Empty CSV" in problem:
        return _no_rows(path)
    if "UTF8" in problem:
        return _not_utf8(path, where)
    if found := re.search(r"Expected (\d+) columns, got (\d+)", problem):
        return _ragged(path, where, int(found[1]), int(found[2]), layout)
    if "straddl" in problem:
        return ConfigurationError(
            f"{path}: a row is longer than {_BLOCK_MIB} MiB; is a double quote not closed?"
        )
    return _unreadable(path, problem)


def _ragged(
    path: Path, where: str, expected: int, found: int, layout: TextLayout
) -> ConfigurationError:
    if layout.names:
        first, last = layout.names[0], layout.names[-1]
        return ConfigurationError(
            f"{path}: {where} has {found} values where the format has {expected}, from "
            f"{quoted(first)} to {quoted(last)}; `id_column` tells whether an ID comes first"
        )
    return ConfigurationError(
        f"{path}: {where} has {found} values where the header has {expected}; put values "
        "that hold the delimiter, a quote or a line break in double quotes"
    )


def _no_rows(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path}: has no rows; there must be one for each person")


def _not_utf8(path: Path, where: str = "the file") -> ConfigurationError:
    return ConfigurationError(f"{path}: {where} is not UTF-8; {_RECODE}")


def _unreadable(path: Path, problem: object) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: cannot be read: {quoted(str(problem), 200)}; check its format and write it again"
    )
