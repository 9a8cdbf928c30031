"""Convert an Arrow column of any type to IDs, numbers, categories or dates."""

from __future__ import annotations

import re
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from pydantic import Field

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted
from florist.common.settings.data import ISO_DATES
from florist.common.settings.section import StrictModel

#: Texts that mean a missing number. Parquet files have nulls and NaN instead.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")


class ValueRules(StrictModel):
    """How the values of all feature columns of a table are written."""

    #: Texts and numbers that mean a missing value, in addition to `MISSING` and nulls.
    na_values: tuple[str, ...] = Field(default=(), strict=False)
    date_format: str = ISO_DATES

    @cached_property
    def na_numbers(self) -> tuple[float, ...]:
        """Those of the values that are numbers, such as -999."""
        parsed = (parse_numbers(pa.chunked_array([[text]])) for text in self.na_values)
        return tuple(
            numbers[0].as_py() for numbers in parsed if numbers is not None and numbers[0].is_valid
        )


DEFAULT_RULES = ValueRules()


def as_ids(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Convert to large strings. Only types with an exact text form are accepted.

    Raises:
        ConfigurationError: starts with `where` and names the fix.
    """
    column = _decoded(column)
    if types.is_integer(column.type):
        return column.cast(pa.large_string())
    if not _is_text(column.type):
        inexact = ", which has no exact text form" if types.is_floating(column.type) else ""
        raise ConfigurationError(
            f"{where}: has type {column.type}{inexact}; store the IDs as strings"
        )
    return _utf8(column, pa.large_string(), where)


def as_categories(
    column: pa.ChunkedArray, where: str, rules: ValueRules = DEFAULT_RULES
) -> pa.ChunkedArray:
    """Convert to strings; a missing value becomes the empty string.

    Raises:
        ConfigurationError: starts with `where`; the values have no text form or are not UTF-8.
    """
    column = _decoded(column)
    if _is_text(column.type):
        column = _utf8(column, pa.string(), where)
    else:
        if types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        try:
            column = column.cast(pa.string())
        except pa.ArrowException:
            raise ConfigurationError(
                f"{where}: has type {column.type}, which cannot be a feature; exclude the column "
                "by listing the features under `numeric` and `categorical`"
            ) from None
    if rules.na_values:
        is_missing = pc.is_in(
            pc.utf8_trim_whitespace(column), value_set=pa.array(rules.na_values, column.type)
        )
        column = pc.if_else(is_missing, "", column)
    return without_nulls(column)


def without_nulls(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace missing texts by empty ones."""
    # To convert the replacement, pyarrow loads pandas if that is installed, which takes a while.
    return pc.fill_null(texts, "") if texts.null_count else texts


def as_numbers(
    column: pa.ChunkedArray, where: str, rules: ValueRules = DEFAULT_RULES
) -> pa.ChunkedArray:
    """Convert to 64-bit floats; a missing value becomes null or NaN.

    Raises:
        ConfigurationError: starts with `where`; a value is not a number.
    """
    column = _decoded(column)
    try:
        if not _is_text(column.type):
            return _without_na_numbers(column.cast(pa.float64(), safe=False), rules)
        return _parsed(_utf8(column, pa.string(), where), rules)
    except pa.ArrowInvalid as error:
        found = re.search(r"Failed to parse string: '(.*)' as a scalar", str(error), re.DOTALL)
        example = f"text such as {quoted(found[1])}" if found else "values that are not numbers"
    except pa.ArrowException:
        example = f"{column.type} values"
    raise ConfigurationError(
        f"{where}: must be numeric but contains {example}; write numbers (leave missing "
        "values empty, or list how they are written under `na_values`), or list the column under "
        "`categorical`"
    )


def as_dates(
    column: pa.ChunkedArray, where: str, rules: ValueRules = DEFAULT_RULES
) -> pa.ChunkedArray:
    """Convert to timestamps in UTC without a zone, with microseconds; null where missing.

    Raises:
        ConfigurationError: starts with `where`; a value is not a date.
    """
    column = _decoded(column)
    example = f"{column.type} values"
    try:
        if is_date(column.type):
            return _without_zone(column)
        if types.is_integer(column.type) and rules.date_format != ISO_DATES:
            column = column.cast(pa.string())
        if _is_text(column.type):
            return _parsed_dates(_utf8(column, pa.string(), where), rules)
    except pa.ArrowInvalid as error:
        found = re.search(r"Failed to parse string: '(.*)' as a scalar", str(error), re.DOTALL)
        example = f"text such as {quoted(found[1])}" if found else "values that are not dates"
    raise ConfigurationError(
        f"{where}: must be dates but contains {example}; write dates such as 2024-03-31 or "
        "2024-03-31 18:30 (leave missing values empty), set `date_format`, or remove the column "
        "from `dates`"
    )


def parse_numbers(
    texts: pa.ChunkedArray, rules: ValueRules = DEFAULT_RULES
) -> pa.ChunkedArray | None:
    """Parse text as numbers, null where missing; None if any other text is not a number."""
    try:
        return _parsed(texts, rules)
    except pa.ArrowInvalid:
        return None


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether columns of this type hold numbers."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_date(kind: pa.DataType) -> bool:
    """Return whether columns of this type hold dates, with or without a time of day."""
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _parsed(texts: pa.ChunkedArray, rules: ValueRules) -> pa.ChunkedArray:
    # Chunk by chunk, so that text in the first chunk ends the parsing at once.
    chunks = [_present(chunk, rules).cast(pa.float64()) for chunk in texts.chunks]
    return _without_na_numbers(pa.chunked_array(chunks, pa.float64()), rules)


def _parsed_dates(texts: pa.ChunkedArray, rules: ValueRules) -> pa.ChunkedArray:
    chunks = [_dates_of(_present(chunk, rules), rules.date_format) for chunk in texts.chunks]
    return pa.chunked_array(chunks, pa.timestamp("us"))


def _dates_of(texts: pa.StringArray, date_format: str) -> pa.TimestampArray:
    if date_format != ISO_DATES:
        return pc.strptime(texts, format=date_format, unit="us")
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        if not pc.any(pc.match_substring_regex(texts, r"(Z|[-+]\d\d:?\d\d)$")).as_py():
            raise
        return _without_zone(texts.cast(pa.timestamp("us", "UTC")))


def _without_zone(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert dates to microseconds in UTC, truncating nanoseconds."""
    return dates.cast(pa.timestamp("us", getattr(dates.type, "tz", None)), safe=False).cast(
        pa.timestamp("us")
    )


def _present(texts: pa.StringArray, rules: ValueRules) -> pa.StringArray:
    """Return the texts without white space around them, null where missing."""
    texts = pc.ascii_trim_whitespace(texts)
    is_missing = pc.is_in(texts, value_set=pa.array([*MISSING, *rules.na_values]))
    return pc.if_else(is_missing, None, texts)


def _without_na_numbers(numbers: pa.ChunkedArray, rules: ValueRules) -> pa.ChunkedArray:
    """Replace numbers that mean a missing value by null."""
    if not rules.na_numbers:
        return numbers
    return pc.if_else(pc.is_in(numbers, value_set=pa.array(rules.na_numbers)), None, numbers)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def _utf8(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.ChunkedArray:
    try:
        # Cast through bytes: Parquet does not guarantee that its strings are UTF-8.
        binary = pa.binary() if column.type == pa.string() else pa.large_binary()
        return column.cast(binary).cast(kind)
    except pa.ArrowInvalid:
        raise ConfigurationError(
            f"{where}: contains values that are not UTF-8; save the file as UTF-8"
        ) from None


def _is_text(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )
