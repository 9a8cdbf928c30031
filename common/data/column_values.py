"""Convert an Arrow column of any type to IDs, numbers or categories."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted

#: Texts that mean a missing number. Parquet files have nulls and NaN instead.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")


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


def as_categories(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
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
    return without_nulls(column)


def without_nulls(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace missing texts by empty ones."""
    # To convert the replacement, pyarrow loads pandas if that is installed, which takes a while.
    return pc.fill_null(texts, "") if texts.null_count else texts


def as_numbers(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """Convert to 64-bit floats; a missing value becomes null or NaN.

    Raises:
        ConfigurationError: starts with `where`; a value is not a number.
    """
    column = _decoded(column)
    try:
        if not _is_text(column.type):
            return column.cast(pa.float64(), safe=False)
        return _parsed(_utf8(column, pa.string(), where))
    except pa.ArrowInvalid as error:
        found = re.search(r"Failed to parse string: '(.*)' as a scalar", str(error), re.DOTALL)
        example = f"text such as {quoted(found[1])}" if found else "values that are not numbers"
    except pa.ArrowException:
        example = f"{column.type} values"
    raise ConfigurationError(
        f"{where}: must be numeric but contains {example}; write numbers (leave missing "
        "values empty), or list the column under `categorical`"
    )


def parse_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Parse text as numbers, null where missing; None if any other text is not a number."""
    try:
        return _parsed(texts)
    except pa.ArrowInvalid:
        return None


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether columns of this type hold numbers."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _parsed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    # Chunk by chunk, so that text in the first chunk ends the parsing at once.
    return pa.chunked_array([_parsed_chunk(chunk) for chunk in texts.chunks], pa.float64())


def _parsed_chunk(texts: pa.StringArray) -> pa.DoubleArray:
    texts = pc.ascii_trim_whitespace(texts)
    is_missing = pc.is_in(texts, value_set=pa.array(MISSING))
    return pc.if_else(is_missing, None, texts).cast(pa.float64())


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
