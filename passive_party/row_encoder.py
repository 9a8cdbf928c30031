"""A few rows, given value by value, as features: for requests that come one at a time.

The result is that of `Preprocessing.transform`, which is made for whole tables: for each call it
hashes all vocabularies anew. Here that is done once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted, quoted_few
from florist.common.data.features import Features

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from florist.common.data.preprocessing import Preprocessing


#: Whole numbers that may stand for a category are smaller than this.
WHOLE_LIMIT = 2**53


class BadRow(ConfigurationError):  # noqa: N818 - it reads as what was given
    """A row that cannot be predicted; the message names the row, counted from 0, and the column."""

    advice = "Correct the row and ask again."


class RowEncoder:
    """What was learned from the training table, ready for single rows."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        self._numeric = preprocessing.numeric_columns
        self._categorical = preprocessing.categorical_columns
        self._columns = frozenset((*self._numeric, *self._categorical))
        self._ranges = preprocessing.ranges
        self._is_log = preprocessing.settings.scaling == "log"
        self._indices: list[dict[str, int]] = [
            {text: index for index, text in enumerate(each.categories.to_pylist(), start=1)}
            for each in preprocessing.vocabularies
        ]
        least = np.array([known.minimum for known in self._ranges])
        greatest = np.array([known.maximum for known in self._ranges])
        # As `NumberRange.scaled`, for all columns at once.
        self._half_least = least / 2
        span = greatest / 2 - self._half_least
        self._constant = span <= 0
        self._span = np.where(self._constant, 1.0, span)

    def __call__(self, rows: Sequence[Mapping[str, object]]) -> Features:
        """The features of each row, in their order.

        Every column must be there; None, and NaN for a number, stand for a missing value. Numbers
        in a column of categories are taken as their digits.

        Raises:
            BadRow: names the row and the column.
        """
        numbers = np.empty((len(rows), len(self._numeric)))
        indices = np.empty((len(rows), len(self._categorical)), dtype=np.int32)
        for place, row in enumerate(rows):
            if row.keys() != self._columns:
                raise self._other_columns(place, row)
            numbers[place] = [_number(row[column], place, column) for column in self._numeric]
            indices[place] = [
                known.get(_category(row[column], place, column), 0)
                for column, known in zip(self._categorical, self._indices, strict=True)
            ]
        return Features(self._scaled(numbers), indices)

    def _scaled(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        if self._is_log:
            numbers = np.copysign(np.log1p(np.abs(numbers)), numbers)
        with np.errstate(over="ignore"):
            scaled = np.clip((numbers / 2 - self._half_least) / self._span, 0, 1)
        scaled[:, self._constant] = 0
        result: npt.NDArray[np.float32] = scaled.astype(np.float32)
        return result

    def _other_columns(self, place: int, row: Mapping[str, object]) -> BadRow:
        if missing := sorted(self._columns - row.keys()):
            return BadRow(
                f"row {place}: lacks columns that the model was trained with: "
                f"{quoted_few(missing, 20)}; give each, with null where the value is missing"
            )
        unknown = sorted(str(column) for column in row.keys() - self._columns)
        return BadRow(
            f"row {place}: has columns that the model does not know: {quoted_few(unknown, 20)}; "
            "leave them out"
        )


def _number(value: object, place: int, column: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        if math.isnan(number):
            return 0.0
        raise BadRow(f"row {place}, column {quoted(column)}: holds an infinite number")
    raise BadRow(f"row {place}, column {quoted(column)}: must be a number, or null if missing")


def _category(value: object, place: int, column: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    plain = int(value) if isinstance(value, np.integer) else value
    # A whole number may come as 7.0: JSON makes no difference.
    if (
        isinstance(plain, int | float)
        and not isinstance(plain, bool)
        and abs(plain) < WHOLE_LIMIT
        and plain == int(plain)
    ):
        return str(int(plain))
    raise BadRow(
        f"row {place}, column {quoted(column)}: must be text or a whole number, or null if missing"
    )
