"""A column as IDs, as numbers or as categories, from whatever type it was stored in."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from florist.common.core.errors import ConfigurationError
from florist.common.core.text import quoted

#: What stands for a missing number in text. Parquet has nulls and NaN for it.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")


def as_ids(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """As large strings; only of types whose text is exact.

    Raises:
        ConfigurationError: starts with `where`, and says what to write instead.
    """
    column = _decoded(column)
    if types.is_integer(column.type):
        return column.cast(pa.large_string())
    if not _is_text(column.type):
        inexact = ", which are not exact" if types.is_floating(column.type) else ""
        raise ConfigurationError(
            f"{where}: holds {column.type} values{inexact}; write the IDs as strings"
        )
    return _utf8(column, pa.large_string(), where)


def as_categories(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """As strings, with the empty one where a value is missing.

    Raises:
        ConfigurationError: starts with `where`; the values have no text, or are not UTF-8.
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
                f"{where}: holds {column.type} values, which are no feature; leave it out of "
                "`numeric` and `categorical`, and list there what to use"
            ) from None
    return pc.fill_null(column, "")


def as_numbers(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    """As 64-bit floats, null or NaN where a value is missing.

    Raises:
        ConfigurationError: starts with `where`; a value is no number.
    """
    column = _decoded(column)
    try:
        if not _is_text(column.type):
            return column.cast(pa.float64(), safe=False)
        return _parsed(_utf8(column, pa.string(), where))
    except pa.ArrowInvalid as error:
        found = re.search(r"Failed to parse string: '(.*)' as a scalar", str(error), re.DOTALL)
        example = f"text, such as {quoted(found[1])}" if found else "values that are no numbers"
    except pa.ArrowException:
        example = f"{column.type} values"
    raise ConfigurationError(
        f"{where}: must be numbers, and holds {example}; write numbers there (or nothing where "
        "one is missing), or list it under `categorical`"
    )


def numbers_in(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """As `as_numbers`, when text holds numbers, at least one, and nothing else but missing ones."""
    numbers = numbers_or_nothing_in(texts)
    return numbers if numbers is not None and numbers.null_count < len(numbers) else None


def numbers_or_nothing_in(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """As `numbers_in`, also when all are missing."""
    try:
        return _parsed(texts)
    except pa.ArrowInvalid:
        return None


def is_numeric(kind: pa.DataType) -> bool:
    """Whether a typed column holds numbers."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _parsed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    # Chunk by chunk, so that text which is no numbers is known as such from the first.
    return pa.chunked_array([_parsed_chunk(chunk) for chunk in texts.chunks], pa.float64())


def _parsed_chunk(texts: pa.StringArray) -> pa.DoubleArray:
    texts = pc.ascii_trim_whitespace(texts)
    is_missing = pc.is_in(texts, value_set=pa.array(MISSING))
    return pc.if_else(is_missing, None, texts).cast(pa.float64())


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def _utf8(column: pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.ChunkedArray:
    try:
        # Through bytes, since Parquet does not promise that its strings are UTF-8.
        binary = pa.binary() if column.type == pa.string() else pa.large_binary()
        return column.cast(binary).cast(kind)
    except pa.ArrowInvalid:
        raise ConfigurationError(
            f"{where}: has values that are not UTF-8; save the file with that encoding"
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
