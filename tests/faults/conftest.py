"""Prints a table of all faults at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [
        (report.nodeid.rpartition("::")[2].removeprefix("test_"), outcome, report)
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(outcome)
        if "tests/faults" in report.nodeid and (report.when == "call" or outcome == "skipped")
    ]
    if not rows:
        return
    terminalreporter.section("faults")
    for name, outcome, report in sorted(rows, key=lambda row: row[0]):
        facts = ", ".join(f"{value} {key}" for key, value in report.user_properties)
        terminalreporter.write_line(f"{outcome:8} {report.duration:5.0f} s  {name}  {facts}")
