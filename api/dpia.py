"""A data protection impact assessment, filled in from a configuration and its tables' headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.data.table_files import open_table
from florist.common.reports.dpia import TableColumns, assessment

if TYPE_CHECKING:
    from florist.common.settings.data import Table
    from florist.common.settings.party_config import PartyConfig


def impact_assessment(config: PartyConfig) -> str:
    """Return the assessment as Markdown. Only the names of columns are read from the tables."""
    agreement, data = config.agreement, config.data
    tables = {"train": data.train}
    if agreement.training.test_table and data.test_table is not None:
        tables["test"] = data.test_table
    if agreement.evaluation.table and data.evaluation_table is not None:
        tables["evaluation"] = data.evaluation_table
    return assessment(
        config, [TableColumns(name, table, _columns(table)) for name, table in tables.items()]
    )


def _columns(table: Table) -> list[str] | None:
    try:
        return open_table(table).names
    except ConfigurationError:
        return None
