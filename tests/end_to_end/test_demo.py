"""The demo: two parties as processes, and what it prints about them."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from florist.cli.demo import run_demo
from tests.support.parties import QuickClicks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.whole
def test_the_demo_shows_every_part(tmp_path: Path) -> None:
    output = StringIO()
    run_demo(tmp_path / "demo", QuickClicks(), Console(file=output, width=200))
    printed = output.getvalue()
    for part in (
        "What each party learned about the other's people",
        "✓ Checked with both files",
        "Training by epoch",
        "baseline-partial: the intersection only",
        "FLORIST, default (the run above)",
        "What a curious peer could infer",
        "truth (known only to the demo)",
        "probability of a click",
        "Reports:",
    ):
        assert part in printed, part
    reports = printed.rpartition("Reports:")[2]
    assert reports.count("report.html") == 4
