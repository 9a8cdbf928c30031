"""A report on the columns of a table, for its owner only: it quotes values.

It shows how training would read each column, and warns of what is probably a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from florist.common.core.text import quoted
from florist.common.data.column_statistics import ColumnStatistics
from florist.common.data.column_values import is_date, is_numeric
from florist.common.data.id_format import IdFormat, IdFormatReader
from florist.common.data.table_files import open_table
from florist.common.data.table_ids import id_column_name, normalised_ids
from florist.common.data.table_reader import feature_candidates, value_rules

if TYPE_CHECKING:
    from florist.common.data.table_files import TableFiles
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import Columns, PreprocessingSettings, Table

ColumnKind = Literal["label", "numeric", "categorical", "date", "not used"]

#: Rows that suffice for a report in passing.
INSPECTED_ROWS = 1_000_000

#: Values per part.
_VALUES = 1 << 20
_MAX_ROWS = 1 << 17
#: Categories that are shown.
_TOP = 3
#: With fewer rows, a column of different values is no surprise.
_MIN_ROWS = 20
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class ColumnWarning:
    """What is probably a mistake."""

    #: Quotes no value, so that it may be shown where others read it.
    text: str
    #: Values that show it, for the owner only.
    values: str = ""


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """A column, as training would read it."""

    name: str
    kind: ColumnKind
    #: How it is stored: `text`, or the type in a Parquet file.
    stored: str
    #: From 0 to 1.
    missing: float
    distinct: int
    #: Whether `distinct` is exact; otherwise it is an estimate.
    is_exact: bool
    #: The smallest and the largest value of numbers and dates; the most frequent texts otherwise.
    contents: str
    #: How it is given to the model.
    encoding: str
    warnings: tuple[ColumnWarning, ...]


@dataclass(frozen=True, slots=True)
class TableReport:
    """All columns of a table."""

    source: str
    rows: int
    #: Whether all rows were read.
    is_complete: bool
    #: None if row numbers are the IDs.
    ids: IdFormat | None
    columns: tuple[ColumnReport, ...]
    #: Columns that training does not read.
    unread: tuple[str, ...]

    @property
    def warnings(self) -> list[tuple[str, ColumnWarning]]:
        """All warnings, with the names of their columns."""
        return [(column.name, each) for column in self.columns for each in column.warnings]


def inspect_table(
    table: Table,
    normalisation: Normalisation,
    settings: PreprocessingSettings,
    *,
    max_rows: int | None = None,
) -> TableReport:
    """Read a table once and report on its columns.

    Args:
        table: a table of the configuration.
        normalisation: the agreement's, for the IDs.
        settings: of the preprocessing.
        max_rows: how many rows to read; None reads all.

    Raises:
        ConfigurationError: the table cannot be read, or columns are missing.
    """
    files = open_table(table)
    id_column = id_column_name(table)
    others = [name for name in (id_column, table.label) if name is not None]
    features = feature_candidates(files, table.numeric, table.categorical, table.dates, others)
    read = [*([] if table.label is None else [table.label]), *features]
    rules = value_rules(table)
    statistics = {
        name: ColumnStatistics(f"{table.path}, column {quoted(name)}", rules) for name in read
    }
    ids = None if id_column is None else IdFormatReader(id_column)
    names = list(dict.fromkeys([*others, *features])) or files.names[:1]
    rows, is_complete = 0, True
    for content, _ in files.batches(names, min(max(_VALUES // len(names), 1), _MAX_ROWS)):
        if max_rows is not None and rows >= max_rows:
            is_complete = False
            break
        rows += content.num_rows
        for name, column in statistics.items():
            column.add(content.column(name))
        if ids is not None:
            ids.add(_id_texts(content, ids.column, table, normalisation))
    return TableReport(
        str(table.path),
        rows,
        is_complete,
        None if ids is None else ids.format(),
        tuple(
            _report(name, _kind(name, table, files, found), _stored(files, name), found, settings)
            for name, found in statistics.items()
        ),
        tuple(name for name in files.names if name not in names),
    )


def _id_texts(
    content: pa.Table, column: str, table: Table, normalisation: Normalisation
) -> pa.LargeStringArray:
    where = f"{table.path}, column {quoted(column)}"
    ids = normalised_ids(content.column(column), where, normalisation)
    buffers = pa.py_buffer(ids.offsets), pa.py_buffer(ids.data)
    return pa.LargeStringArray.from_buffers(len(ids), *buffers)


def _stored(files: TableFiles, name: str) -> str:
    return "text" if files.schema is None else str(files.schema.field(name).type)


def _kind(name: str, table: Table, files: TableFiles, found: ColumnStatistics) -> ColumnKind:
    """Return how training reads a column; the same rules as in `TableReader`."""
    if name == table.label:
        return "label"
    listed: dict[ColumnKind, Columns] = {
        "numeric": table.numeric,
        "categorical": table.categorical,
        "date": table.dates,
    }
    for kind, columns in listed.items():
        if columns != "auto" and name in columns:
            return kind
    stored = None if files.schema is None else files.schema.field(name).type
    if stored is not None and table.dates == "auto" and is_date(stored):
        return "date"
    has_numbers = found.numbers > 0 and not found.others if stored is None else is_numeric(stored)
    if has_numbers and table.numeric == "auto":
        return "numeric"
    return "categorical" if table.categorical == "auto" else "not used"


def _report(
    name: str,
    kind: ColumnKind,
    stored: str,
    found: ColumnStatistics,
    settings: PreprocessingSettings,
) -> ColumnReport:
    words = found.missing_words if kind in ("numeric", "date") else 0
    missing = (found.missing + words) / found.rows
    distinct = found.distinct
    return ColumnReport(
        name,
        kind,
        stored,
        missing,
        distinct,
        found.is_exact,
        _contents(kind, found),
        _encoding(kind, distinct, settings),
        tuple(_warnings(kind, missing, found)),
    )


def _contents(kind: ColumnKind, found: ColumnStatistics) -> str:
    if kind == "numeric" and found.numbers:
        return f"{found.minimum:g} to {found.maximum:g}"
    if kind == "date" and found.first_date:
        return f"{found.first_date} to {found.last_date}"
    shown = [
        f"{quoted(text, 20)} {count / found.counted_rows:.0%}" for text, count in found.top(_TOP)
    ]
    return ", ".join(shown)


def _encoding(kind: ColumnKind, distinct: int, settings: PreprocessingSettings) -> str:
    bins = f" and one of {settings.bins} bins" if settings.bins else ""
    return {
        "numeric": f"{settings.scaling} scale{bins}",
        "date": "day, month and weekday, as numbers",
        "categorical": f"one of {distinct:,} categories"
        + (f" with at least {settings.min_count} rows" if settings.min_count > 1 else ""),
        "label": "class",
        "not used": "none",
    }[kind]


def _warnings(kind: ColumnKind, missing: float, found: ColumnStatistics) -> list[ColumnWarning]:
    if found.problem:
        return [ColumnWarning(found.problem)]
    if kind == "not used":
        return []
    present, warnings = found.present, []
    if missing > _NEARLY_ALL:
        warnings.append(ColumnWarning(f"{missing:.1%} of the values are missing"))
    elif _is_constant(kind, found):
        alone = "the same value in every row" + (" that has one" if missing else "")
        warnings.append(ColumnWarning(f"{alone}; it tells the model nothing: leave it out"))
    is_mostly_numbers = found.numbers and 0 < found.others <= 0.1 * present
    if kind == "categorical" and not is_mostly_numbers:
        warnings += _category_warnings(found, present)
    texts = ", ".join(
        f"{quoted(text, 20)} ({count:,})"
        for text, count in sorted(found.other_texts.items(), key=lambda each: -each[1])[:5]
    )
    if kind == "numeric" and found.others:
        warnings.append(
            ColumnWarning(
                f"listed under `numeric`, but {_rows(found.others)} text, so training will refuse "
                "it; list the texts that mean a missing value under `na_values`",
                texts,
            )
        )
    if kind == "categorical" and is_mostly_numbers:
        warnings.append(
            ColumnWarning(
                f"numbers, except that {_rows(found.others)} text, so all its numbers are read as "
                "categories; if these texts mean a missing value, list them under `na_values`",
                texts,
            )
        )
    return warnings


def _is_constant(kind: ColumnKind, found: ColumnStatistics) -> bool:
    if kind == "label" or found.rows == 1:
        return False
    return found.distinct <= 1 or (kind == "numeric" and found.minimum == found.maximum)


def _category_warnings(found: ColumnStatistics, present: int) -> list[ColumnWarning]:
    if found.looks_like_dates:
        known = found.likely_date_format()
        how = "" if known == "iso" else f' and set `date_format`: "{known or "..."}"'
        return [ColumnWarning(f"dates that are read as categories; list it under `dates`{how}")]
    if present >= _MIN_ROWS and found.distinct > _NEARLY_ALL * present:
        return [
            ColumnWarning(
                "nearly every row has a text of its own, such as a name or a number of a person; "
                "it tells the model nothing about others: leave it out"
            )
        ]
    return []


def _rows(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"
