"""Tables of people: IDs, label and features, read in one pass, checked, whole arrays at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.column_values import (
    as_categories,
    as_ids,
    as_numbers,
    is_numeric,
    numbers_in,
)
from florist.common.data.id_check import IdCheck
from florist.common.data.table_files import TextLayout, open_table
from florist.common.settings.formats import FORMATS, ROW_NUMBER
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from florist.common.data.table_files import TableFile
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import Columns, Table

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
            ids=IdColumn.from_arrow(ids.cast(pa.large_string())),
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
    others = [column for column in (id_name(table), table.label) if column is not None]
    candidates = feature_candidates(file, numeric, categorical, others)
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
    return IdColumn.from_arrow(pc.fill_null(column, "").combine_chunks())


def read_table_ids(table: Table, normalisation: Normalisation) -> IdColumn:
    """As `read_ids`, of a table of the configuration, whatever its format."""
    column = id_name(table)
    if column is not None:
        return _stream_ids(table_file(table), column, normalisation)
    file = table_file(table)
    return row_numbers(sum(part.num_rows for part in _parts(file, file.names[0])))


def read_ids(
    path: Path, id_column: str, normalisation: Normalisation, *, delimiter: str = ","
) -> IdColumn:
    """Read the IDs of a table, in the order of its rows: at least one, none empty, none twice.

    Only this column is read, and always as text: `007` is not `7`. Whole numbers of a Parquet file
    become their decimal digits.

    Args:
        path: .csv, .tsv, .txt, these with .gz (any .gz is taken for text), or .parquet; or a
            folder of such files.
        id_column: its name in the header or schema.
        normalisation: the agreement's. None of them applies a Unicode normal form.
        delimiter: between the values of a text file's row.

    Raises:
        ConfigurationError: the file, the column and the fix. Its text may quote IDs, so it is for
            this party's operator only.
    """
    return _stream_ids(open_table(path, TextLayout(delimiter)), id_column, normalisation)


# --- the parts of a table ---


def table_file(table: Table) -> TableFile:
    """A table of the configuration, looked at but not read."""
    known = FORMATS.get(table.format)
    names = known.header(table.id_column) if known else None
    return open_table(table.path, TextLayout(table.delimiter, names))


def id_name(table: Table) -> str | None:
    """The column of the IDs; None where rows are numbered."""
    is_numbered = table.format != "plain" and table.id_column == ROW_NUMBER
    return None if is_numbered else table.id_column


def _ids(table: Table, content: pa.Table, normalisation: Normalisation) -> IdColumn:
    column = id_name(table)
    if column is None:
        return row_numbers(content.num_rows)
    return _checked_ids([content.column(column)], table.path, column, normalisation)


def row_numbers(rows: int, first: int = 1) -> IdColumn:
    """The IDs of so many rows that are numbered, from `first` on."""
    numbers = pa.array(np.arange(first, first + rows))
    return IdColumn.from_arrow(numbers.cast(pa.large_string()))


def _stream_ids(file: TableFile, column: str, normalisation: Normalisation) -> IdColumn:
    """The IDs, checked; no more of the file is in memory than these."""
    parts = (part.column(column) for part in _parts(file, column))
    return _checked_ids(parts, file.path, column, normalisation)


def _parts(file: TableFile, column: str) -> Iterator[pa.Table]:
    """The column part by part: at least one row."""
    rows = 0
    for part, _ in file.batches([column], _ROWS_PER_PART):
        rows += part.num_rows
        yield part
    if not rows:
        file.read([column])  # it tells what is wrong


def _checked_ids(
    parts: Iterable[pa.ChunkedArray], path: Path, id_column: str, normalisation: Normalisation
) -> IdColumn:
    """All of them, none empty, none twice."""
    where = f"{path}, column {quoted(id_column)}"
    # Copied, so that Arrow's memory is free for the next part: it keeps what it once had.
    ids = IdColumn.joined(
        [IdColumn.joined([normalised_ids(part, where, normalisation)]) for part in parts]
    )
    check = IdCheck()
    check.add(ids)
    check.facts(f"{where} (normalisation `{normalisation}`)", lambda: [ids])
    return ids


def feature_candidates(
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
