"""A table as it was read: converted and checked columns, before preprocessing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.column_values import (
    DEFAULT_RULES,
    ValueRules,
    as_categories,
    as_dates,
    as_numbers,
    is_numeric,
)
from florist.common.data.date_parts import date_parts, part_names
from florist.common.storage.id_column import IdColumn

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """The names of the feature columns, in the order in which a model takes them."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    #: Each becomes several numeric columns; see `date_parts`.
    dates: tuple[str, ...] = ()
    rules: ValueRules = DEFAULT_RULES

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, by kind."""
        return *self.numeric, *self.categorical, *self.dates

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numeric columns after conversion: those of the table, and the parts of its dates."""
        return *self.numeric, *(part for name in self.dates for part in part_names(name))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RawTable:
    """IDs, labels and features before preprocessing. Row `i` of each of them is one person."""

    #: The file that the table comes from, for messages.
    source: str
    ids: IdColumn
    #: The label column as stored (strings if it comes from a text file); None without labels.
    label: pa.ChunkedArray | None
    label_column: str | None
    #: The features. Numbers are float64, with null or NaN for a missing value; categories are
    #: strings, with the empty string for a missing value.
    columns: pa.Table

    @classmethod
    def from_arrow(
        cls, source: str, ids: pa.Array, columns: pa.Table, label: pa.Array | None = None
    ) -> Self:
        """Create a table from Arrow data; numeric columns are numbers, others are categories."""
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
        """The names of the feature columns, by kind."""
        kinds = list(zip(self.columns.column_names, self.columns.schema.types, strict=True))
        return FeatureColumns(
            numeric=tuple(name for name, kind in kinds if kind == pa.float64()),
            categorical=tuple(name for name, kind in kinds if kind != pa.float64()),
        )


def convert_features(source: str, content: pa.Table, features: FeatureColumns) -> RawTable:
    """Convert the feature columns of an Arrow table; the result has empty IDs and no label.

    Args:
        source: the name of the data, for messages.
        content: the rows; columns that are not features are ignored.
        features: the columns to convert.

    Raises:
        ConfigurationError: a column is missing, or its values cannot be converted.
    """
    check_has_columns(source, content.column_names, features.names)
    columns = {
        name: convert(content.column(name), f"{source}, column {quoted(name)}", features.rules)
        for names, convert in (
            (features.numeric, as_numbers),
            (features.categorical, as_categories),
        )
        for name in names
    }
    for name in features.dates:
        where = f"{source}, column {quoted(name)}"
        columns |= date_parts(name, as_dates(content.column(name), where, features.rules))
    empty_ids = IdColumn(np.empty(0, np.uint8), np.zeros(content.num_rows + 1, np.int64))
    return RawTable(source, empty_ids, None, None, pa.table(columns))


def check_has_columns(source: str, names: Sequence[str], expected: Sequence[str]) -> None:
    """Check that a table has all columns that the model was trained with.

    Raises:
        ConfigurationError: names the missing columns.
    """
    if missing := [name for name in expected if name not in names]:
        raise ConfigurationError(
            f"{source}: lacks columns that the model was trained with: {quoted_few(missing, 20)}; "
            "add them"
        )
