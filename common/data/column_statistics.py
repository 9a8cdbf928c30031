"""What the values of a column look like, in one pass and in memory that does not grow with it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.core.errors import ConfigurationError
from florist.common.data.category_counts import sum_counts
from florist.common.data.column_values import MISSING, ValueRules, as_categories
from florist.common.data.distinct_count import DistinctCount

#: Different values that are counted exactly; more are estimated.
MAX_EXACT = 50_000
#: Texts of a mostly numeric column that are remembered.
_MAX_OTHERS = 100

_NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
#: Regular expressions of dates, and how `date_format` says them. Where two are possible, the
#: numbers decide.
_DATES = {
    "iso": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}.*)?$",
    "%d.%m.%Y": r"^[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}$",
    "%m/%d/%Y": r"^(0?[1-9]|1[0-2])/[0-9]{1,2}/[0-9]{4}$",
    "%d/%m/%Y": r"^[0-9]{1,2}/(0?[1-9]|1[0-2])/[0-9]{4}$",
}


class ColumnStatistics:
    """Collects the statistics of one column."""

    def __init__(self, where: str, rules: ValueRules) -> None:
        self._where = where
        self._rules = rules
        #: Why the column cannot be used, if so.
        self.problem: str | None = None
        self.rows = 0
        #: Rows that are missing whatever the column is, and those that are missing in a numeric or
        #: date column only, such as NA.
        self.missing = 0
        self.missing_words = 0
        #: Rows with a number, and the smallest and the largest one.
        self.numbers = 0
        self.minimum, self.maximum = np.inf, -np.inf
        #: Rows with a date, by format, and the first and last one in ISO format.
        self.dates = dict.fromkeys(_DATES, 0)
        self.first_date, self.last_date = "", ""
        #: Rows whose text is neither missing nor a number, and the most frequent of these texts.
        self.others = 0
        self.other_texts: dict[str, int] = {}
        #: How often each value occurs, up to `counted_rows`.
        self.counted_rows = 0
        self.is_exact = True
        self._counts: pa.StructArray | None = None
        self._estimate = DistinctCount()

    def add(self, column: pa.ChunkedArray) -> None:
        """Add the values of the next rows."""
        self.rows += len(column)
        if self.problem:
            return
        try:
            counted = self._counted(column)
        except ConfigurationError as error:
            self.problem = error.reason.removeprefix(f"{self._where}: ")
            return
        values, counts = counted.field("values"), counted.field("counts")
        missing = _where_in(values, ("", *self._rules.na_values))
        self.missing += _total(counts, missing)
        counted = counted.filter(pc.invert(missing))
        values, counts = counted.field("values"), counted.field("counts")
        self._add_distinct(counted)
        self._add_kinds(values, counts)

    @property
    def present(self) -> int:
        """The number of rows with a value."""
        return self.rows - self.missing

    @property
    def distinct(self) -> int:
        """The number of different values that are not missing; estimated unless `is_exact`."""
        if not self.is_exact:
            return max(self._estimate.estimate(), MAX_EXACT)
        return 0 if self._counts is None else len(self._counts)

    def top(self, limit: int) -> list[tuple[str, int]]:
        """Return the most frequent values and how often they occur in `counted_rows`."""
        if self._counts is None:
            return []
        table = pa.table({name: self._counts.field(name) for name in ("values", "counts")})
        order = [("counts", "descending"), ("values", "ascending")]
        rows = table.take(pc.select_k_unstable(table, limit, order)).to_pylist()
        return [(each["values"], each["counts"]) for each in rows]

    def likely_date_format(self) -> str | None:
        """Return the `date_format` in which nearly all values are dates; None if none is."""
        present = self.present - self.missing_words
        fitting = [name for name, rows in self.dates.items() if rows == present > 0]
        # 03/04/2024 may be in March or in April.
        return fitting[0] if len(fitting) == 1 else None

    @property
    def looks_like_dates(self) -> bool:
        """Whether nearly all values look like dates, in any format."""
        present = self.present - self.missing_words
        return present > 0 and max(self.dates.values()) >= 0.9 * present

    def _counted(self, column: pa.ChunkedArray) -> pa.StructArray:
        """Return the distinct texts of a part, without white space around them."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            counted = column.value_counts()
        except pa.ArrowException:  # nested types
            counted = pa.StructArray.from_arrays(
                [column.combine_chunks(), pa.array(np.ones(len(column), np.int64))],
                names=["values", "counts"],
            )
        texts = as_categories(pa.chunked_array([counted.field("values")]), self._where)
        texts = pc.utf8_trim_whitespace(texts).combine_chunks()
        return pa.StructArray.from_arrays(
            [texts, counted.field("counts")], names=["values", "counts"]
        )

    def _add_distinct(self, counted: pa.StructArray) -> None:
        self._estimate.add(counted.field("values").cast(pa.large_string()))
        if not self.is_exact:
            return
        known = [] if self._counts is None else [self._counts]
        # The same text may occur twice in a part, with and without white space around it.
        empty = counted.slice(0, 0)
        self._counts = sum_counts([*known, counted, empty])
        self.counted_rows = self.rows
        self.is_exact = len(self._counts) <= MAX_EXACT

    def _add_kinds(self, values: pa.StringArray, counts: pa.Int64Array) -> None:
        words = _where_in(values, MISSING)
        self.missing_words += _total(counts, words)
        is_number = pc.match_substring_regex(values, _NUMBER)
        if pc.any(is_number).as_py():
            numbers = values.filter(is_number).cast(pa.float64()).to_numpy()
            real = ~np.isin(numbers, self._rules.na_numbers)
            self.missing += int(counts.filter(is_number).to_numpy()[~real].sum())
            self.numbers += int(counts.filter(is_number).to_numpy()[real].sum())
            if real.any():
                self.minimum = min(self.minimum, float(numbers[real].min()))
                self.maximum = max(self.maximum, float(numbers[real].max()))
        for name, pattern in _DATES.items():
            found = pc.match_substring_regex(values, pattern)
            self.dates[name] += _total(counts, found)
            if name == "iso" and pc.any(found).as_py():
                ends = pc.min_max(values.filter(found)).as_py()
                self.first_date = min(self.first_date or ends["min"], ends["min"])
                self.last_date = max(self.last_date, ends["max"])
        other = pc.invert(pc.or_(is_number, words))
        self.others += _total(counts, other)
        if len(self.other_texts) < _MAX_OTHERS:
            for text, count in zip(
                values.filter(other).slice(0, _MAX_OTHERS).to_pylist(),
                counts.filter(other).slice(0, _MAX_OTHERS).to_pylist(),
                strict=True,
            ):
                self.other_texts[text] = self.other_texts.get(text, 0) + count


def _where_in(values: pa.StringArray, texts: tuple[str, ...]) -> pa.BooleanArray:
    return pc.is_in(values, value_set=pa.array(texts, values.type))


def _total(counts: pa.Int64Array, mask: pa.BooleanArray) -> int:
    return pc.sum(counts.filter(mask)).as_py() or 0
