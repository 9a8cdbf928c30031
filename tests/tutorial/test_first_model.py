"""The first tutorial, run as a reader would: every command works and prints what the page shows."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.tutorial.page import missing_lines, run_page

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-model.md"


def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    commands = run_page(PAGE.read_text(encoding="utf-8"), tmp_path, {"7443": port})
    assert len(commands) >= 8
    wrong = {command.line: lines for command in commands if (lines := missing_lines(command))}
    assert not wrong, "update the page: python -m tests.tutorial.update"
