"""Read a table in parts: only a few of them are in memory at a time, whatever its size."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.common.data.column_values import ValueRules, is_date, is_numeric, parse_numbers
from florist.common.data.date_parts import part_names
from florist.common.data.raw_table import FeatureColumns, RawTable, convert_features
from florist.common.data.table_errors import changed
from florist.common.data.table_files import open_table
from florist.common.data.table_ids import IdReader, id_column_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.data.table_files import TableFiles
    from florist.common.settings.agreement import Normalisation
    from florist.common.settings.data import Columns, Table

#: Values per part: some tens of megabytes of text, and enough for Arrow to be fast.
_VALUES = 1 << 20
_MAX_ROWS = 1 << 17


class _Kind(Enum):
    """What a column holds."""

    NUMBER = auto()
    CATEGORY = auto()
    DATE = auto()
    #: Only numbers or missing values so far.
    UNDECIDED = auto()
    EXCLUDED = auto()


class TableReader:
    """Reads the rows of a table in parts, in one or several passes.

    In a text file, the kind of an `auto` column depends on all rows. The first pass therefore
    treats such a column as numeric until a part contains other text. `features` is final after the
    first pass, and `found_late` names the categorical columns that were returned as numbers in
    some parts.
    """

    def __init__(self, table: Table, *, features: FeatureColumns | None = None) -> None:
        """Open the table; reads only its column names and types.

        Args:
            table: a table of the configuration.
            features: replaces the table's own columns and how their values are written. Every
                table except the training table is read with `Preprocessing.features`, since the
                result of `auto` depends on the rows.

        Raises:
            ConfigurationError: the table cannot be read, or columns are missing.
        """
        self._table = table
        self._files = open_table(table)
        #: The state of the files.
        self.stamp = self._files.stamp()
        numeric: Columns = features.numeric if features else table.numeric
        categorical: Columns = features.categorical if features else table.categorical
        dates: Columns = features.dates if features else table.dates
        self._rules = features.rules if features else value_rules(table)
        others = [name for name in (id_column_name(table), table.label) if name is not None]
        candidates = feature_candidates(self._files, numeric, categorical, dates, others)
        self._names = [*others, *candidates] or self._files.names[:1]
        self._kinds = {name: self._kind(name, numeric, categorical, dates) for name in candidates}
        self._check_date_parts()
        #: The kind of an undecided column in which text is found.
        self._text_kind = _Kind.CATEGORY if categorical == "auto" else _Kind.EXCLUDED
        self._late: set[str] = set()
        self._with_numbers: set[str] = set()
        #: Counted by the first pass.
        self.rows = 0

    @property
    def source(self) -> str:
        """The path of the table, for messages."""
        return str(self._table.path)

    @property
    def features(self) -> FeatureColumns:
        """The feature columns; final after the first pass."""
        return self._features(
            self._columns_of(_Kind.NUMBER, _Kind.UNDECIDED), self._columns_of(_Kind.CATEGORY)
        )

    def late_features(self) -> FeatureColumns:
        """Return `found_late` as features."""
        return FeatureColumns((), self.found_late, rules=self._rules)

    @property
    def found_late(self) -> tuple[str, ...]:
        """Categorical columns that the first pass returned as numbers at first."""
        return tuple(name for name in self._columns_of(_Kind.CATEGORY) if name in self._late)

    def first_pass(self) -> Iterator[tuple[pa.Table, RawTable]]:
        """Yield each part as stored, for IDs and labels, and its features as far as known.

        Raises:
            ConfigurationError: names the file, the column and the fix. The message may quote
                values, so it is for this party's operator only.
        """
        for content in self._contents(self._names):
            features = self._converted(content)
            self.rows += content.num_rows
            yield content, features
        for name in self._columns_of(_Kind.UNDECIDED):
            if name not in self._with_numbers:
                self._treat_as_text(name)

    def reread(self, features: FeatureColumns) -> Iterator[RawTable]:
        """Yield each part again, with these features only.

        Raises:
            ConfigurationError: as `first_pass`, or the table was modified.
        """
        rows = 0
        for content in self._contents(list(features.names) or self._files.names[:1]):
            rows += content.num_rows
            if rows > self.rows:
                raise changed(self.source)
            yield convert_features(self.source, content, features)
        if rows != self.rows:
            raise changed(self.source)

    def _contents(self, names: Sequence[str]) -> Iterator[pa.Table]:
        rows = min(max(_VALUES // len(names), 1), _MAX_ROWS)
        for content, _ in self._files.batches(names, rows):
            yield content
        if self._files.stamp() != self.stamp:
            raise changed(self.source)

    # --- the kinds of columns ---

    def _kind(self, name: str, numeric: Columns, categorical: Columns, dates: Columns) -> _Kind:
        listed = {_Kind.NUMBER: numeric, _Kind.CATEGORY: categorical, _Kind.DATE: dates}
        for known, columns in listed.items():
            if columns != "auto" and name in columns:
                return known
        schema = self._files.schema
        kind = None if schema is None else schema.types[self._files.names.index(name)]
        if dates == "auto" and kind is not None and is_date(kind):
            return _Kind.DATE
        if numeric != "auto":
            return _Kind.CATEGORY
        if kind is None:
            return _Kind.UNDECIDED
        return _Kind.NUMBER if is_numeric(kind) else _Kind.CATEGORY

    def _check_date_parts(self) -> None:
        for name in self._columns_of(_Kind.DATE):
            if taken := [part for part in part_names(name) if part in self._kinds]:
                raise ConfigurationError(
                    f"{self.source}, column {quoted(name)}: its part {quoted(taken[0])} has the "
                    "name of another column; rename one"
                )

    def _features(self, numeric: tuple[str, ...], categorical: tuple[str, ...]) -> FeatureColumns:
        return FeatureColumns(numeric, categorical, self._columns_of(_Kind.DATE), self._rules)

    def _columns_of(self, *kinds: _Kind) -> tuple[str, ...]:
        return tuple(name for name, kind in self._kinds.items() if kind in kinds)

    def _converted(self, content: pa.Table) -> RawTable:
        numbers: dict[str, pa.ChunkedArray] = {}
        for name in self._columns_of(_Kind.UNDECIDED):
            parsed = parse_numbers(content.column(name), self._rules)
            if parsed is None:
                self._treat_as_text(name)
                continue
            numbers[name] = parsed
            if parsed.null_count < len(parsed):
                self._with_numbers.add(name)
        known = self._features(self._columns_of(_Kind.NUMBER), self._columns_of(_Kind.CATEGORY))
        rest = convert_features(self.source, content, known)
        columns = dict(zip(rest.columns.column_names, rest.columns.columns, strict=True))
        return replace(rest, columns=pa.table({**numbers, **columns}))

    def _treat_as_text(self, name: str) -> None:
        self._kinds[name] = self._text_kind
        if self.rows:
            self._late.add(name)


def read_whole_table(
    table: Table, normalisation: Normalisation, *, features: FeatureColumns | None = None
) -> RawTable:
    """Read a small table into memory: its checked IDs, its label and its features.

    Args:
        table: a table of the configuration.
        normalisation: the agreement's, for the IDs.
        features: as of `TableReader`.

    Raises:
        ConfigurationError: as `TableReader` and `IdReader`.
    """
    reader = TableReader(table, features=features)
    ids = IdReader(table, normalisation, keep=True)
    labels: list[pa.Array] = []
    parts: list[pa.Table] = []
    for content, part in reader.first_pass():
        ids.add(content)
        if table.label is not None:
            labels += content.column(table.label).chunks
        parts.append(part.columns)
    ids.finish()
    if reader.found_late:
        parts = [part.columns for part in reader.reread(reader.features)]
    names = [*reader.features.numbers, *reader.features.categorical]
    column = ids.column()
    assert column is not None
    return RawTable(
        source=reader.source,
        ids=column,
        label=pa.chunked_array(labels) if table.label is not None else None,
        label_column=table.label,
        columns=pa.concat_tables([part.select(names) for part in parts]),
    )


def value_rules(table: Table) -> ValueRules:
    """Return how the values of a table of the configuration are written."""
    return ValueRules(na_values=table.na_values, date_format=table.date_format)


def feature_candidates(
    files: TableFiles, numeric: Columns, categorical: Columns, dates: Columns, others: list[str]
) -> list[str]:
    """Return the columns that are features, or may turn out to be.

    Raises:
        ConfigurationError: a column has no name.
    """
    if numeric != "auto" and categorical != "auto":
        return [*numeric, *categorical, *(() if dates == "auto" else dates)]
    if "" in files.names:
        raise ConfigurationError(
            f"{files.path}: a column has no name; name it, or list the features under `numeric` "
            "and `categorical`"
        )
    listed = [
        name for columns in (numeric, categorical, dates) if columns != "auto" for name in columns
    ]
    found = [name for name in files.names if name not in {*others, *listed}]
    if files.schema is not None and categorical != "auto":
        kinds = dict(zip(files.names, files.schema.types, strict=True))
        found = [
            name
            for name in found
            if is_numeric(kinds[name]) or (dates == "auto" and is_date(kinds[name]))
        ]
    return [*listed, *found]
