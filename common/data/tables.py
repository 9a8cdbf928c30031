"""Tables of people: IDs, label and features, read in one pass, checked, whole arrays at a time."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.data.column_values import (
    as_categories,
    as_ids,
    as_numbers,
    is_numeric,
    numbers_in,
)
from florist.common.data.formats import FORMATS, ROW_NUMBER
from florist.common.data.ids import IdColumn, quick_digests
from florist.common.data.quoting import quoted, quoted_few
from florist.common.data.table_files import TextLayout, open_table
from florist.common.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from florist.common.agreement import Normalisation
    from florist.common.config import Columns, Table
    from florist.common.data.table_files import TableFile

#: What `strip` removes. Listed, because libraries' Unicode tables change with their releases, and
#: both parties must get the same bytes.
WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


#: Of IDs that are read by themselves.
_ROWS_PER_PART = 1 << 17


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """Which columns are features, in the order in which a model takes them."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RawTable:
    """A table as it was read, before a model can take it. Row `i` of all parts is one person."""

    #: For messages: the file it comes from.
    source: str
    ids: IdColumn
    #: As stored (from text files, text), with its column's name; None where there is none.
    label: pa.ChunkedArray | None
    label_column: str | None
    #: The features alone: numbers are float64, null or NaN where missing; categories are strings,
    #: empty where missing.
    columns: pa.Table

    @classmethod
    def from_arrow(
        cls, source: str, ids: pa.Array, columns: pa.Table, label: pa.Array | None = None
    ) -> Self:
        """From what is in memory: columns of numbers are numbers, others are categories."""
        return cls(
            source=source,
            ids=_id_column(ids.cast(pa.large_string())),
            label=None if label is None else pa.chunked_array([label]),
            label_column=None if label is None else "label",
            columns=pa.table(
                {
                    name: (as_numbers if is_numeric(column.type) else as_categories)(
                        column, f"{source}, column {quoted(name)}"
                    )
                    for name, column in zip(columns.column_names, columns.columns, strict=True)
                }
            ),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"RawTable({len(self)} rows, {self.columns.num_columns} features)"

    @property
    def features(self) -> FeatureColumns:
        kinds = list(zip(self.columns.column_names, self.columns.schema.types, strict=True))
        return FeatureColumns(
            numeric=tuple(name for name, kind in kinds if kind == pa.float64()),
            categorical=tuple(name for name, kind in kinds if kind != pa.float64()),
        )


def read_table(
    table: Table, normalisation: Normalisation, *, features: FeatureColumns | None = None
) -> RawTable:
    """Read a table's IDs (as `read_ids` does), label and features; no other column.

    Args:
        table: the configuration's.
        normalisation: the agreement's, for the IDs.
        features: in place of the table's own `numeric` and `categorical`. Every table but the one
            trained on is read with `Preprocessing.features`: what `auto` finds depends on the rows.

    Raises:
        ConfigurationError: the file, the column and the fix. Its text may quote IDs and values, so
            it is for this party's operator only.
    """
    file = table_file(table)
    numeric: Columns = features.numeric if features else table.numeric
    categorical: Columns = features.categorical if features else table.categorical
    others = [column for column in (_id_name(table), table.label) if column is not None]
    candidates = _candidates(file, numeric, categorical, others)
    content = file.read([*others, *candidates] or file.names[:1])
    return RawTable(
        source=str(table.path),
        ids=_ids(table, content, normalisation),
        label=None if table.label is None else content.column(table.label),
        label_column=table.label,
        columns=_features(file, content.select(candidates), numeric, categorical),
    )


def rows_without_ids(source: str, content: pa.Table, features: FeatureColumns) -> RawTable:
    """Rows of which only the features matter; other columns are left out.

    Raises:
        ConfigurationError: a column is not there, or holds what it cannot.
    """
    wanted = (*features.numeric, *features.categorical)
    if missing := [name for name in wanted if name not in content.column_names]:
        raise ConfigurationError(
            f"{source}: lacks columns that the model was trained with: {quoted_few(missing, 20)}; "
            "add them"
        )
    columns = {
        name: convert(content.column(name), f"{source}, column {quoted(name)}")
        for names, convert in (
            (features.numeric, as_numbers),
            (features.categorical, as_categories),
        )
        for name in names
    }
    nobody = IdColumn(np.empty(0, np.uint8), np.zeros(content.num_rows + 1, np.int64))
    return RawTable(source, nobody, None, None, pa.table(columns))


def normalised_ids(texts: pa.ChunkedArray, where: str, normalisation: Normalisation) -> IdColumn:
    """IDs as `read_ids` gives them, of any column; empty ones and repeated ones are kept.

    Raises:
        ConfigurationError: starts with `where`; the column has no exact text.
    """
    column = _normalised(as_ids(texts, where), normalisation)
    return _id_column(pc.fill_null(column, "").combine_chunks())


def read_table_ids(table: Table, normalisation: Normalisation) -> IdColumn:
    """As `read_ids`, of a table of the configuration, whatever its format."""
    column = _id_name(table)
    if column is not None:
        return _stream_ids(table_file(table), column, normalisation)
    file = table_file(table)
    return _numbers(sum(part.num_rows for part in _parts(file, file.names[0])))


def read_ids(
    path: Path, id_column: str, normalisation: Normalisation, *, delimiter: str = ","
) -> IdColumn:
    """Read the IDs of a table, in the order of its rows: at least one, none empty, none twice.

    Only this column is read, and always as text: `007` is not `7`. Whole numbers of a Parquet file
    become their decimal digits.

    Args:
        path: .csv, .tsv, .txt, these with .gz (any .gz is taken for text), or .parquet.
        id_column: its name in the header or schema.
        normalisation: the agreement's. None of them applies a Unicode normal form.
        delimiter: between the values of a text file's row.

    Raises:
        ConfigurationError: the file, the column and the fix. Its text may quote IDs, so it is for
            this party's operator only.
    """
    return _stream_ids(open_table(path, TextLayout(delimiter)), id_column, normalisation)


def fingerprint(ids: IdColumn) -> str:
    """SHA-256 (hex) of the exact IDs in their order: equal only for equal columns."""
    first, last = ids.offsets[0], ids.offsets[-1]
    digest = sha256(b"florist/ids/1")
    digest.update(len(ids).to_bytes(8, "little"))
    # Where each ID ends, and then all bytes: together they can be read in one way only.
    digest.update(np.ascontiguousarray(ids.offsets[1:] - first, dtype="<i8").data)
    digest.update(np.ascontiguousarray(ids.data[first:last]).data)
    return digest.hexdigest()


# --- the parts of a table ---


def table_file(table: Table) -> TableFile:
    """A table of the configuration, looked at but not read."""
    known = FORMATS.get(table.format)
    names = known.header(table.id_column) if known else None
    return open_table(table.path, TextLayout(table.delimiter, names))


def _id_name(table: Table) -> str | None:
    """The column of the IDs; None where rows are numbered."""
    is_numbered = table.format != "plain" and table.id_column == ROW_NUMBER
    return None if is_numbered else table.id_column


def _ids(table: Table, content: pa.Table, normalisation: Normalisation) -> IdColumn:
    column = _id_name(table)
    if column is None:
        return _numbers(content.num_rows)
    return _checked_ids([content.column(column)], table.path, column, normalisation)


def _numbers(rows: int) -> IdColumn:
    """The IDs of rows that are numbered from 1."""
    return _id_column(pa.array(np.arange(1, rows + 1)).cast(pa.large_string()))


def _stream_ids(file: TableFile, column: str, normalisation: Normalisation) -> IdColumn:
    """The IDs, checked; no more of the file is in memory than these."""
    parts = (part.column(column) for part in _parts(file, column))
    return _checked_ids(parts, file.path, column, normalisation)


def _parts(file: TableFile, column: str) -> Iterator[pa.Table]:
    """The column part by part: at least one row."""
    rows = 0
    try:
        for part, _ in file.batches([column], _ROWS_PER_PART):
            rows += part.num_rows
            yield part
    except ConfigurationError:
        file.read([column])  # it tells more exactly what is wrong, and where
        raise
    if not rows:
        file.read([column])


def _checked_ids(
    parts: Iterable[pa.ChunkedArray], path: Path, id_column: str, normalisation: Normalisation
) -> IdColumn:
    where = f"{path}, column {quoted(id_column)}"
    pieces: list[IdColumn] = []
    for part in parts:
        texts = pc.fill_null(_normalised(as_ids(part, where), normalisation), "")
        # Copied, so that Arrow's memory is free for the next part: it keeps what it once had.
        pieces.append(IdColumn.joined([_id_column(texts.combine_chunks())]))
    ids = IdColumn.joined(pieces)
    where = f"{where} (normalisation `{normalisation}`)"
    _refuse_empty(ids, where)
    _refuse_repeated(ids, where)
    return ids


def _candidates(
    file: TableFile, numeric: Columns, categorical: Columns, others: list[str]
) -> list[str]:
    """The columns that are features, or may turn out to be."""
    if numeric != "auto" and categorical != "auto":
        return [*numeric, *categorical]
    if "" in file.names:
        raise ConfigurationError(
            f"{file.path}: a column has no name; give it one, or list the features under `numeric` "
            "and `categorical`"
        )
    listed = [name for columns in (numeric, categorical) if columns != "auto" for name in columns]
    found = [name for name in file.names if name not in {*others, *listed}]
    if file.schema is not None and categorical != "auto":
        kinds = dict(zip(file.names, file.schema.types, strict=True))
        found = [name for name in found if is_numeric(kinds[name])]
    return [*listed, *found]


def _features(
    file: TableFile, content: pa.Table, numeric: Columns, categorical: Columns
) -> pa.Table:
    columns = dict(zip(content.column_names, content.columns, strict=True))
    where = {name: f"{file.path}, column {quoted(name)}" for name in columns}
    if numeric == "auto":
        listed = () if categorical == "auto" else categorical
        found = {
            name: _numbers_found(column, where[name], is_typed=file.schema is not None)
            for name, column in columns.items()
            if name not in listed
        }
        numbers = {name: column for name, column in found.items() if column is not None}
    else:
        numbers = {name: as_numbers(columns[name], where[name]) for name in numeric}
    if categorical == "auto":
        categorical = tuple(name for name in columns if name not in numbers)
    categories = {name: as_categories(columns[name], where[name]) for name in categorical}
    return pa.table({**numbers, **categories})


def _numbers_found(
    column: pa.ChunkedArray, where: str, *, is_typed: bool
) -> pa.ChunkedArray | None:
    if not is_typed:
        return numbers_in(column)
    return as_numbers(column, where) if is_numeric(column.type) else None


# --- normalising and checking ---


def _normalised(column: pa.ChunkedArray, normalisation: Normalisation) -> pa.ChunkedArray:
    if normalisation == "none":
        return column
    column = pc.utf8_trim(column, characters=WHITE_SPACE)
    # A-Z only: what other letters become depends on the release of Unicode.
    return pc.ascii_lower(column) if normalisation == "strip-lower" else column


def _id_column(texts: pa.LargeStringArray) -> IdColumn:
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return IdColumn(np.frombuffer(data, dtype=np.uint8), bounds)


def _refuse_empty(ids: IdColumn, where: str) -> None:
    rows = np.flatnonzero(ids.offsets[1:] == ids.offsets[:-1])
    if len(rows):
        raise ConfigurationError(
            f"{where}: IDs missing or empty: {len(rows):,} of {len(ids):,}, the first in row "
            f"{rows[0] + 1:,} after the header; give each row an ID, or take the row out"
        )


def _refuse_repeated(ids: IdColumn, where: str) -> None:
    digests = quick_digests(ids)
    ordered = np.sort(digests)
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(shared):
        return
    # Equal digests make a suspect; only equal IDs are refused.
    suspects = ids.take(np.flatnonzero(np.isin(digests, shared)))
    counts = pa.array((each.decode() for each in suspects), pa.large_string()).value_counts()
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        rows = pc.sum(repeated.field("counts")).as_py()
        raise ConfigurationError(
            f"{where}: IDs there more than once: {len(repeated):,}, in {rows:,} rows: "
            f"{quoted_few(repeated.field('values'), 5)}; keep one row of each"
        )
