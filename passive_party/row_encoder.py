"""Encode a few rows, given as mappings: for single requests.

The result is the same as of `Preprocessing.transform`. That is meant for whole tables and hashes
all vocabularies at each call; this module does it once.
"""

from __future__ import annotations

import math
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.column_values import as_dates
from florist.common.data.date_parts import date_parts
from florist.common.data.features import Features
from florist.common.settings.data import ISO_DATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from florist.common.data.preprocessing import Preprocessing


#: Integers that are accepted as categories are smaller than this.
INTEGER_LIMIT = 2**53


class BadRow(ConfigurationError):  # noqa: N818 - it names the cause
    """A row that cannot be encoded; the message names the row, counted from 0, and the column."""

    advice = "Correct the row and send the request again."


class RowEncoder:
    """Applies the preprocessing fitted to the training table to single rows."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        features = preprocessing.features
        self._numeric, self._categorical = features.numeric, features.categorical
        self._dates, self._rules = features.dates, features.rules
        self._columns = frozenset(features.names)
        self._ranges = preprocessing.ranges
        self._is_log = preprocessing.settings.scaling == "log"
        self._indices: list[dict[str, int]] = [
            {text: index for index, text in enumerate(each.categories.to_pylist(), start=1)}
            for each in preprocessing.vocabularies
        ]
        minimum = np.array([each.minimum for each in self._ranges])
        maximum = np.array([each.maximum for each in self._ranges])
        # The same as `NumberRange.scaled`, for all columns at once.
        self._half_minimum = minimum / 2
        span = maximum / 2 - self._half_minimum
        self._constant = span <= 0
        self._span = np.where(self._constant, 1.0, span)
        self._bins = preprocessing.bins

    def __call__(self, rows: Sequence[Mapping[str, object]]) -> Features:
        """Encode rows, in their order.

        A row must have all columns. None, NaN in a numeric column, and the texts and numbers that
        meant so in training, mean a missing value. An integer in a categorical column is converted
        to its digits. Dates are texts, as in training.

        Raises:
            BadRow: names the row and the column.
        """
        numbers = np.empty((len(rows), len(self._numeric)))
        indices = np.empty((len(rows), len(self._categorical)), dtype=np.int32)
        for index, row in enumerate(rows):
            if row.keys() != self._columns:
                raise self._wrong_columns(index, row)
            numbers[index] = [self._number(row[column], index, column) for column in self._numeric]
            indices[index] = [
                known.get(self._category(row[column], index, column), 0)
                for column, known in zip(self._categorical, self._indices, strict=True)
            ]
        numbers = np.column_stack((numbers, *(self._date(rows, name) for name in self._dates)))
        bins = [each.indices(numbers[:, place]) for place, each in enumerate(self._bins)]
        if bins:
            indices = np.column_stack((indices, *bins))
        return Features(self._scaled(numbers), np.ascontiguousarray(indices))

    def _number(self, value: object, index: int, column: str) -> float:
        if isinstance(value, str) and value.strip() in self._rules.na_values:
            return math.nan
        number = _number(value, index, column)
        return math.nan if number in self._rules.na_numbers else number

    def _category(self, value: object, index: int, column: str) -> str:
        text = _category(value, index, column)
        return "" if text.strip() in self._rules.na_values else text

    def _date_text(self, value: object, index: int, column: str) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, date):  # also a datetime
            return _written(value, self._rules.date_format)
        raise BadRow(f"row {index}, column {quoted(column)}: must be a date as text, or null")

    def _date(self, rows: Sequence[Mapping[str, object]], column: str) -> npt.NDArray[np.float64]:
        """Return the parts of a date, side by side."""
        texts = [self._date_text(row[column], index, column) for index, row in enumerate(rows)]
        try:
            dates = as_dates(
                pa.chunked_array([pa.array(texts, pa.string())]),
                f"rows, column {quoted(column)}",
                self._rules,
            )
        except (ConfigurationError, UnicodeEncodeError):
            example = _written(date(2024, 3, 31), self._rules.date_format)
            raise BadRow(
                f"rows, column {quoted(column)}: must be dates as in the training table, such as "
                f"{quoted(example)}, or null if missing"
            ) from None
        return np.column_stack([part.to_numpy() for part in date_parts(column, dates).values()])

    def _scaled(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        numbers = np.nan_to_num(numbers, nan=0.0)
        if self._is_log:
            numbers = np.copysign(np.log1p(np.abs(numbers)), numbers)
        with np.errstate(over="ignore"):
            scaled = np.clip((numbers / 2 - self._half_minimum) / self._span, 0, 1)
        scaled[:, self._constant] = 0
        result: npt.NDArray[np.float32] = scaled.astype(np.float32)
        return result

    def _wrong_columns(self, index: int, row: Mapping[str, object]) -> BadRow:
        if missing := sorted(self._columns - row.keys()):
            return BadRow(
                f"row {index}: lacks columns that the model was trained with: "
                f"{quoted_few(missing, 20)}; add them, with null for a missing value"
            )
        unknown = sorted(str(column) for column in row.keys() - self._columns)
        return BadRow(
            f"row {index}: has columns that the model does not use: {quoted_few(unknown, 20)}; "
            "remove them"
        )


def _number(value: object, index: int, column: str) -> float:
    """Return a number, NaN if it is missing."""
    if value is None:
        return math.nan
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        if math.isnan(number):
            return number
        raise BadRow(f"row {index}, column {quoted(column)}: contains an infinite number")
    raise BadRow(f"row {index}, column {quoted(column)}: must be a number, or null if missing")


def _written(day: date, date_format: str) -> str:
    return day.isoformat() if date_format == ISO_DATES else day.strftime(date_format)


def _category(value: object, index: int, column: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    plain = int(value) if isinstance(value, np.integer) else value
    # An integer may be written as 7.0: JSON does not distinguish the two.
    if (
        isinstance(plain, int | float)
        and not isinstance(plain, bool)
        and abs(plain) < INTEGER_LIMIT
        and plain == int(plain)
    ):
        return str(int(plain))
    raise BadRow(
        f"row {index}, column {quoted(column)}: must be text or an integer, or null if missing"
    )
