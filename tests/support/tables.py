"""Tables of tests: IDs as a list, and a slow, obvious reader to compare the real one with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv, parquet

from florist.common.data.column_values import MISSING, as_categories, as_numbers, is_numeric
from florist.common.data.id_check import IdCheck
from florist.common.data.number_bins import NumberBins
from florist.common.data.preprocessing import (
    NumberRange,
    Preprocessing,
    Vocabulary,
    numbers_of,
    on_scale,
)
from florist.common.data.raw_table import RawTable
from florist.common.data.table_files import open_table
from florist.common.data.table_ids import TableIds, id_column_name, normalised_ids
from florist.common.settings.data import Table
from florist.common.storage.id_column import IdColumn
from tests.support.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.data.raw_table import FeatureColumns
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import PreprocessingSettings


def read_ids(
    path: Path, id_column: str, normalisation: Normalisation, *, delimiter: str = ","
) -> IdColumn:
    """The checked IDs of a small file."""
    return read_table_ids(Table(path=path, id_column=id_column, delimiter=delimiter), normalisation)


def read_table_ids(table: Table, normalisation: Normalisation) -> IdColumn:
    """The checked IDs of a small table."""
    ids = TableIds(table, normalisation, MemoryStorage())
    return IdColumn.joined(list(ids.batches(1 << 17)))


# --- the slow reader ---


def read_at_once(
    table: Table, normalisation: Normalisation, *, features: FeatureColumns | None = None
) -> RawTable:
    """What `read_whole_table` must return, from the whole file at once.

    Only for files that can be read; conversions and checks of values are the real ones.
    """
    content = _read_file(table)
    source, id_column = str(table.path), id_column_name(table)
    if id_column is None:
        ids = IdColumn.from_bytes(str(row + 1).encode() for row in range(content.num_rows))
    else:
        where = f"{source}, column {id_column!r}"
        ids = normalised_ids(content.column(id_column), where, normalisation)
        check = IdCheck()
        check.add(ids)
        check.finish(f"{where} (normalisation `{normalisation}`)", lambda: [ids])
    label = None if table.label is None else content.column(table.label)
    others = content.drop_columns([name for name in (id_column, table.label) if name is not None])
    is_text = table.path.suffix != ".parquet"
    numeric = features.numeric if features else table.numeric
    categorical = features.categorical if features else table.categorical
    if numeric == "auto":
        listed = () if categorical == "auto" else categorical
        numeric = tuple(
            name
            for name in others.column_names
            if name not in listed and _holds_numbers(others.column(name), is_text=is_text)
        )
    if categorical == "auto":
        categorical = tuple(name for name in others.column_names if name not in numeric)
    columns = {
        name: convert(others.column(name), f"{source}, column {name!r}")
        for names, convert in ((numeric, as_numbers), (categorical, as_categories))
        for name in names
    }
    return RawTable(source, ids, label, table.label, pa.table(columns))


def _read_file(table: Table) -> pa.Table:
    if table.path.suffix == ".parquet":
        return parquet.read_table(table.path)
    files = open_table(table)
    return csv.read_csv(
        table.path,
        csv.ReadOptions(column_names=files.text.names),
        csv.ParseOptions(delimiter=files.text.delimiter, newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(files.names, pa.string()), strings_can_be_null=False
        ),
    )


def _holds_numbers(column: pa.ChunkedArray, *, is_text: bool) -> bool:
    """Whether all values are numbers or missing, and at least one is a number."""
    if not is_text:
        return is_numeric(column.type)
    present = [text for text in map(str.strip, column.to_pylist()) if text not in MISSING]
    return bool(present) and all(map(_is_number, present))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def fit_at_once(raw: RawTable, settings: PreprocessingSettings) -> Preprocessing:
    """What `fit_preprocessing` must return, in the obvious way."""
    ranges = []
    for column in raw.features.numeric:
        values = on_scale(raw, column, settings.scaling).tolist()
        ranges.append(
            NumberRange(column=column, minimum=min(values) + 0.0, maximum=max(values) + 0.0)
        )
    vocabularies = []
    for column in raw.features.categorical:
        texts = raw.columns.column(column).to_pylist()
        known = sorted(
            (text for text in set(texts) if texts.count(text) >= settings.min_count),
            key=str.encode,
        )
        vocabularies.append(Vocabulary(column, pa.array(known, pa.string())))
    bins = [
        NumberBins(column=column, edges=slow_edges(raw, column, settings.bins))
        for column in (raw.features.numeric if settings.bins else ())
    ]
    return Preprocessing(settings, tuple(ranges), tuple(vocabularies), tuple(bins))


def slow_edges(raw: RawTable, column: str, bins: int) -> list[float]:
    """Return the edges of a column's quantile bins, in the obvious way."""
    values = [value for value in numbers_of(raw, column).tolist() if value == value]  # noqa: PLR0124 - not NaN
    distinct = sorted(set(values))
    if len(distinct) <= bins:
        return [edge + 0.0 for edge in distinct[1:]]
    edges = set()
    for quantile in range(1, bins):
        for value in distinct:
            if sum(each < value for each in values) * bins >= quantile * len(values):
                edges.add(value + 0.0)
                break
    return sorted(edges)
