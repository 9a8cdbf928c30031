"""IDs appear on the owner's terminal and nowhere else."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from florist.api.preflight import Check
from florist.cli import tool
from florist.cli.console import LogFormat, log, report_error, set_up_output
from florist.common.core.errors import ConfigurationError
from florist.common.observability.log_tail import LogTail

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGE = "people.csv: IDs that occur more than once: 2, in 5 rows; keep one row per ID"
EXAMPLES = "'ann', 'bob'"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def own_logger() -> Iterator[None]:
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    log.handlers[:] = handlers
    log.setLevel(level)
    log.propagate = propagate


def report(stream: io.StringIO, log_format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is written to standard error."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("TERM", "xterm")
    set_up_output(log_format, verbose=False)
    error = ConfigurationError(MESSAGE)
    error.examples = EXAMPLES
    report_error(error)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


def test_a_terminal_shows_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = report(Terminal(), LogFormat.auto, monkeypatch)
    assert "occur more than once: 2" in shown
    assert "'ann'" in shown


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_log_has_the_count_only(log_format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    written = report(io.StringIO(), log_format, monkeypatch)
    assert MESSAGE in written
    assert "ann" not in written


def test_json_on_a_terminal_has_the_count_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON lines are made for a log collector, wherever they are written."""
    first, *_ = report(Terminal(), LogFormat.json, monkeypatch).splitlines()
    assert json.loads(first)["message"] == MESSAGE
    assert "ann" not in first


def test_the_log_of_the_status_page_has_the_count_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tail = LogTail()
    with monkeypatch.context() as patch:
        patch.setattr(logging.Logger, "callHandlers", lambda _, record: tail.handle(record))
        report(Terminal(), LogFormat.auto, monkeypatch)
    assert MESSAGE in [line.text for line in tail.lines()]
    assert not any("ann" in line.text for line in tail.lines())


@pytest.mark.parametrize("terminal", [True, False])
def test_preflight_shows_examples_on_a_terminal_only(
    terminal: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(tool, "out", Console(file=stream, force_terminal=terminal, width=250))
    tool._print_check(Check("IDs", passed=False, message=MESSAGE, examples=EXAMPLES))
    assert MESSAGE in stream.getvalue()
    assert ("'ann'" in stream.getvalue()) is terminal
