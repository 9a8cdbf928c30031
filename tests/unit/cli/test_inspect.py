"""`florist inspect` on the files of `florist init`."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from rich.console import Console

from florist.api.preflight import preflight
from florist.cli.init import Names, write_first_files
from florist.cli.inspect import inspect_tables
from florist.common.data.column_report import inspect_table
from florist.common.reports.column_section import column_section
from florist.common.settings.loader import load_config
from florist.experiments.sample_data import ClickSample

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_tables_of_a_trial(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    write_first_files(tmp_path, Names("bank", "telco"), "localhost:7443", ClickSample())
    config = load_config(tmp_path / "passive.yml")
    path = config.data.train.path
    lines = path.read_text(encoding="utf-8").splitlines()
    # A column with a text of its own for the owner only.
    rows = [
        f"{line},{'secret-word' if number == 5 else number}" for number, line in enumerate(lines)
    ]
    path.write_text("\n".join([f"{lines[0]},income", *rows[1:]]) + "\n", encoding="utf-8")
    out = io.StringIO()
    warnings = inspect_tables(config, Console(file=out, width=200))
    text = out.getvalue()
    assert warnings == text.count("⚠ ") >= 1
    assert "⚠ income: numbers, except that 1 row has text" in text
    assert "secret-word" in text
    assert f"IDs in {config.data.train.id_column}: " in text
    found = {check.name: check for check in preflight(config)}["column report"]
    assert found.passed
    assert "column income: numbers, except that 1 row has text" in found.message
    assert "secret-word" not in found.message + found.examples
    assert "secret-word" not in caplog.text
    report = inspect_table(config.data.train, "strip", config.data.preprocessing)
    section = column_section(report)
    assert "secret-word" in section
    assert all(column.name in section for column in report.columns)
