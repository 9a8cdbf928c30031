"""Dates as numbers: the day, the month and the day of the week."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

#: The day that counts as 0. Fixed, so that a date is the same number in every table.
FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)

_MICROSECONDS_PER_DAY = 86_400_000_000
_FIRST_MICROSECOND = int(FIRST_DAY.timestamp()) * 1_000_000


def part_names(column: str) -> tuple[str, str, str]:
    """Return the names of the numeric columns that a date column becomes."""
    return f"{column} (day)", f"{column} (month)", f"{column} (weekday)"


def date_parts(column: str, dates: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the numeric columns that a date column becomes, as 64-bit floats.

    The day is counted from 1 January 2000, and a time of day is a fraction of it; the month is 1 to
    12; the weekday is 1 (Monday) to 7. A missing date is missing in all of them.

    Args:
        column: the name of the column.
        dates: the result of `as_dates`.
    """
    since = pc.subtract(dates.cast(pa.int64()), _FIRST_MICROSECOND)
    parts = (
        pc.divide(since.cast(pa.float64(), safe=False), float(_MICROSECONDS_PER_DAY)),
        pc.month(dates).cast(pa.float64()),
        pc.day_of_week(dates, count_from_zero=False).cast(pa.float64()),
    )
    return dict(zip(part_names(column), parts, strict=True))
