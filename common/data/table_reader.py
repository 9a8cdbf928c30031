"""A table in parts, pass by pass: no more than a few parts are in memory, whatever its size."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.data.column_values import is_numeric, numbers_or_nothing_in
from florist.common.data.tables import (
    FeatureColumns,
    feature_candidates,
    id_name,
    rows_without_ids,
    table_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from florist.common.data.tables import RawTable
    from florist.common.settings.data import Columns, Table

#: Values of a part: some tens of megabytes of text, and enough for Arrow to be fast.
_VALUES = 1 << 20
_MOST_ROWS = 1 << 17


class _Kind(Enum):
    NUMBER = auto()
    CATEGORY = auto()
    #: A number as far as it is known.
    OPEN = auto()
    LEFT_OUT = auto()


class TableReader:
    """The rows of a table, as often as they are wanted, in parts.

    What `auto` finds in a text file depends on all rows. So a column of the first pass is of
    numbers until a part has other text in it; `features` is right once the pass is over, and
    `found_late` tells which of its categories were taken for numbers in some parts.
    """

    def __init__(self, table: Table, *, features: FeatureColumns | None = None) -> None:
        """Look at the file; arguments as of `read_table`.

        Raises:
            ConfigurationError: it cannot be read, or lacks columns.
        """
        self._table = table
        self._file = table_file(table)
        self._stamp = self._file.stamp()
        numeric: Columns = features.numeric if features else table.numeric
        categorical: Columns = features.categorical if features else table.categorical
        self._id, self._label = id_name(table), table.label
        others = [column for column in (self._id, self._label) if column is not None]
        candidates = feature_candidates(self._file, numeric, categorical, others)
        self._names = [*others, *candidates] or self._file.names[:1]
        self._kinds = {name: self._kind(name, numeric, categorical) for name in candidates}
        #: Of open columns, what they are when they are no numbers.
        self._else = _Kind.CATEGORY if categorical == "auto" else _Kind.LEFT_OUT
        self._late: set[str] = set()
        self._with_numbers: set[str] = set()
        #: Counted by the first pass.
        self.rows = 0

    @property
    def features(self) -> FeatureColumns:
        """What the rows have, after the first pass; in the order of `read_table`."""
        return FeatureColumns(
            self._all(_Kind.NUMBER, _Kind.OPEN),
            self._all(_Kind.CATEGORY),
        )

    @property
    def found_late(self) -> tuple[str, ...]:
        """Categories of which the first parts were given as numbers."""
        return tuple(name for name in self._all(_Kind.CATEGORY) if name in self._late)

    def first_pass(self) -> Iterator[tuple[pa.Table, RawTable]]:
        """Each part as it is stored, for IDs and labels, and its features as far as known.

        Raises:
            ConfigurationError: as `read_table`; one part after the other, so that of several
                problems another may come first.
        """
        for content in self._contents(self._names):
            features = self._converted(content)
            self.rows += content.num_rows
            yield content, features
        if not self.rows:
            self._file.read(self._names)  # it tells what is wrong
        for name in self._all(_Kind.OPEN):
            if name not in self._with_numbers:
                self._is_no_number(name)

    def again(self, features: FeatureColumns) -> Iterator[RawTable]:
        """Each part, these features of it only.

        Raises:
            ConfigurationError: as before, or the file is another by now.
        """
        rows = 0
        names = [*features.numeric, *features.categorical] or self._file.names[:1]
        for content in self._contents(names):
            rows += content.num_rows
            if rows > self.rows:
                raise self._changed()
            yield rows_without_ids(self.source, content, features)
        if rows != self.rows:
            raise self._changed()

    @property
    def source(self) -> str:
        return str(self._table.path)

    def _contents(self, names: Sequence[str]) -> Iterator[pa.Table]:
        rows = min(max(_VALUES // len(names), 1), _MOST_ROWS)
        for content, _ in self._file.batches(names, rows):
            yield content
        if self._file.stamp() != self._stamp:
            raise self._changed()

    def _changed(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.source}: was changed while it was read; start again, and leave it alone until "
            "training is over"
        )

    # --- what each column holds ---

    def _kind(self, name: str, numeric: Columns, categorical: Columns) -> _Kind:
        if numeric != "auto" and name in numeric:
            return _Kind.NUMBER
        if numeric != "auto" or (categorical != "auto" and name in categorical):
            return _Kind.CATEGORY
        if self._file.schema is None:
            return _Kind.OPEN
        kind = self._file.schema.types[self._file.names.index(name)]
        return _Kind.NUMBER if is_numeric(kind) else _Kind.CATEGORY

    def _all(self, *kinds: _Kind) -> tuple[str, ...]:
        return tuple(name for name, kind in self._kinds.items() if kind in kinds)

    def _converted(self, content: pa.Table) -> RawTable:
        numbers: dict[str, pa.ChunkedArray] = {}
        for name in self._all(_Kind.OPEN):
            found = numbers_or_nothing_in(content.column(name))
            if found is None:
                self._is_no_number(name)
                continue
            numbers[name] = found
            if found.null_count < len(found):
                self._with_numbers.add(name)
        known = FeatureColumns(self._all(_Kind.NUMBER), self._all(_Kind.CATEGORY))
        rest = rows_without_ids(self.source, content, known)
        columns = dict(zip(rest.columns.column_names, rest.columns.columns, strict=True))
        return replace(rest, columns=pa.table({**numbers, **columns}))

    def _is_no_number(self, name: str) -> None:
        self._kinds[name] = self._else
        if self.rows:
            self._late.add(name)
