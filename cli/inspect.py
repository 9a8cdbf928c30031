"""`florist inspect`: the columns of a party's tables, for their owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from florist.common.data.column_report import inspect_table

if TYPE_CHECKING:
    from rich.console import Console

    from florist.common.data.column_report import TableReport
    from florist.common.settings.party_config import PartyConfig


def inspect_tables(config: PartyConfig, out: Console) -> int:
    """Print the report of each table; return the number of warnings.

    Raises:
        ConfigurationError: a table cannot be read, or columns are missing.
    """
    data = config.data
    warnings = 0
    for table in (data.train, data.test_table, data.evaluation_table):
        if table is not None:
            report = inspect_table(table, config.agreement.id_normalisation, data.preprocessing)
            describe_report(report, out)
            warnings += len(report.warnings)
    return warnings


def describe_report(report: TableReport, out: Console) -> None:
    """Print the report of one table."""
    rows = f"{report.rows:,} rows" if report.is_complete else f"the first {report.rows:,} rows"
    _line(out, f"\n{report.source}: {rows}")
    if report.ids is not None:
        _line(out, f"IDs in {report.ids.column}: {report.ids.describe()}")
        _line(out, "  (compare this line with your peer's: different formats share nobody)")
    table = Table("column", "read as", "stored", "missing", "distinct", "contents", "encoding")
    for column in report.columns:
        distinct = f"{column.distinct:,}" if column.is_exact else f"about {column.distinct:,}"
        cells = (
            column.name,
            column.kind,
            column.stored,
            f"{column.missing:.1%}",
            distinct,
            column.contents,
            column.encoding,
        )
        table.add_row(*map(Text, cells))
    out.print(table)
    if report.unread:
        _line(out, f"not used: {', '.join(report.unread)}")
    for name, warning in report.warnings:
        values = f": {warning.values}" if warning.values else ""
        _line(out, f"⚠ {name}: {warning.text}{values}")


def _line(out: Console, text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
