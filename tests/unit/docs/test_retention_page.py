"""The generated retention table is current."""

from __future__ import annotations

from pathlib import Path

from tools.retention_page import page

ROOT = Path(__file__).parents[3]


def test_the_committed_table_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "reference" / "retention.md").read_text(encoding="utf-8")
    assert committed == page(), "run: make reference"
