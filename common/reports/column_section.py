"""The section of a report on the columns of the party's own table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.reports.html import figures_table, tag

if TYPE_CHECKING:
    from florist.common.data.column_report import TableReport
    from florist.common.reports.html import Html


def column_section(report: TableReport) -> Html:
    """Show how each column was read; it quotes values, for the owner of the table."""
    of_rows = "" if report.is_complete else f" Figures of the first {report.rows:,} rows."
    intro = tag(
        "p",
        "How the columns of our own training table were read. This section quotes values of our "
        f"table: remove it before the report is shown to others.{of_rows}",
    )
    rows = [
        (
            column.name,
            column.kind,
            f"{column.missing:.1%}",
            f"{column.distinct:,}" if column.is_exact else f"about {column.distinct:,}",
            column.contents,
            column.encoding,
        )
        for column in report.columns
    ]
    heads = ("column", "read as", "missing", "distinct", "contents", "encoding")
    warnings = [
        tag("li", f"{name}: {each.text}{f': {each.values}' if each.values else ''}")
        for name, each in report.warnings
    ]
    count = len(report.columns)
    table = figures_table(heads, rows, stacks=True)
    return tag(
        "div",
        intro,
        *([tag("ul", *warnings)] if warnings else []),
        tag("details", tag("summary", f"Show all columns ({count:,})"), table),
    )
