"""Read a delimited text file (CSV, TSV, optionally gzipped) in parts; all values are strings."""

from __future__ import annotations

import codecs
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.common.data.table_errors import (
    expands_too_much,
    expansion_limit,
    no_rows,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: The reader's block size; no row can be longer.
_BLOCK_MIB = 4


@dataclass(frozen=True, slots=True)
class TextLayout:
    """The delimiter and the column names of a text file."""

    delimiter: str = ","
    #: The column names of a file without a header; None if the header names them.
    names: tuple[str, ...] | None = None


def text_column_names(path: Path, layout: TextLayout) -> list[str]:
    """Return the column names of a file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
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
    except _ExpandsTooMuch as error:
        raise error.explained(path) from None
    except pa.ArrowException as error:
        raise _explained(path, None, layout, error) from None
    except OSError as error:
        raise unreadable(path, error) from None


def read_text(
    path: Path, names: Sequence[str], layout: TextLayout
) -> Iterator[tuple[pa.Table, float]]:
    """Yield parts of the size of the reader's blocks, and the fraction of the file read so far.

    Values are strings exactly as written, and never null.

    Raises:
        ConfigurationError: the file cannot be read, or a row is malformed.
    """
    try:
        yield from _text_blocks(path, names, layout)
    except _ExpandsTooMuch as error:
        raise error.explained(path) from None
    except pa.ArrowException as error:
        raise _explained(path, names, layout, error) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _text_blocks(
    path: Path, names: Sequence[str] | None, layout: TextLayout, *, use_threads: bool = True
) -> Iterator[tuple[pa.Table, float]]:
    options = _read_options(layout, use_threads=use_threads)
    with (
        _raw(path) as file,
        _decompressed(file, path) as stream,
        csv.open_csv(stream, options, _parse_options(layout), _as_strings(names)) as reader,
    ):
        size = path.stat().st_size
        for blocks, batch in enumerate(reader, start=1):
            # The reader prefetches some blocks. For a compressed file, only the position of the
            # prefetching is known.
            read = file.tell() if stream is not file else blocks * options.block_size
            yield pa.Table.from_batches([batch]), min(read / size, 1.0)


@contextmanager
def _open_text(path: Path) -> Iterator[pa.NativeFile]:
    with _raw(path) as file, _decompressed(file, path) as stream:
        yield stream


def _raw(path: Path) -> pa.NativeFile:
    """Open a Python file, which fails cleanly when it is read after it was closed.

    When a reader is abandoned early, Arrow's threads may still be prefetching while the file is
    closed. With Arrow's own kind of file they would read from whatever file reuses the descriptor.
    """
    return pa.PythonFile(path.open("rb", buffering=0), mode="r")


def _decompressed(file: pa.NativeFile, path: Path) -> pa.NativeFile:
    if path.suffix.lower() != ".gz":
        return file
    return pa.PythonFile(_LimitedGzip(file, path.stat().st_size), mode="r")


class _ExpandsTooMuch(Exception):  # noqa: N818 - caught here and turned into a ConfigurationError
    """A gzip file exceeds `expansion_limit`: perhaps a decompression bomb."""

    def __init__(self, file_bytes: int) -> None:
        super().__init__()
        self.file_bytes = file_bytes

    def explained(self, path: Path) -> ConfigurationError:
        fix = "if it is the right file, decompress it, and specify the decompressed one"
        return expands_too_much(path, self.file_bytes, fix)


class _LimitedGzip:
    """The decompressed content of a gzip file, up to `expansion_limit`."""

    def __init__(self, file: pa.NativeFile, file_bytes: int) -> None:
        self._content = pa.CompressedInputStream(file, "gzip")
        self._file_bytes = file_bytes
        self._left = expansion_limit(file_bytes)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._content.closed)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            _ExpandsTooMuch: there are too many.
        """
        content: bytes = self._content.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise _ExpandsTooMuch(self._file_bytes)
        return content

    def close(self) -> None:
        """Close the stream."""
        self._content.close()


def _read_options(layout: TextLayout, *, use_threads: bool = True) -> csv.ReadOptions:
    return csv.ReadOptions(
        use_threads=use_threads, block_size=_BLOCK_MIB << 20, column_names=layout.names
    )


def _parse_options(layout: TextLayout) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True)


def _as_strings(names: Sequence[str] | None) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        include_columns=names,
        column_types=dict.fromkeys(names or (), pa.string()),  # not inferred: "007" stays "007"
        strings_can_be_null=False,  # "NA" may be a value
    )


# --- errors ---


def _explained(
    path: Path, names: Sequence[str] | None, layout: TextLayout, error: pa.ArrowException
) -> ConfigurationError:
    """Turn the reader's message, which also quotes the row, into one with a fix."""
    problem = str(error)
    # Only the reader without threads reports the number of the row.
    try:
        for _ in _text_blocks(path, names, layout, use_threads=False):
            pass
    except (pa.ArrowException, OSError) as slower:
        problem = str(slower)
    except _ExpandsTooMuch as slower:
        return slower.explained(path)
    row = re.search(r"Row #(\d+)", problem)
    header = "" if layout.names else " (the header is row 1)"
    where = f"row {int(row[1]):,}{header}" if row else "a row"
    if "Empty CSV" in problem:
        return no_rows(path)
    if "UTF8" in problem:
        return _not_utf8(path, where)
    if found := re.search(r"Expected (\d+) columns, got (\d+)", problem):
        return _ragged(path, where, int(found[1]), int(found[2]), layout)
    if "straddl" in problem:
        return ConfigurationError(
            f"{path}: a row is longer than {_BLOCK_MIB} MiB; check for an unclosed double quote"
        )
    return unreadable(path, problem)


def _ragged(
    path: Path, where: str, expected: int, found: int, layout: TextLayout
) -> ConfigurationError:
    if layout.names:
        first, last = layout.names[0], layout.names[-1]
        return ConfigurationError(
            f"{path}: {where} has {found} values but the format has {expected}, from "
            f"{quoted(first)} to {quoted(last)}; `id_column` determines whether the first column "
            "is an ID"
        )
    return ConfigurationError(
        f"{path}: {where} has {found} values but the header has {expected}; put double quotes "
        "around values that contain the delimiter, a double quote or a line break"
    )


def _not_utf8(path: Path, where: str = "the file") -> ConfigurationError:
    return ConfigurationError(f"{path}: {where} is not UTF-8; save the file as UTF-8")
