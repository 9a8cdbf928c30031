"""The reliability page has the figures of the stored summary."""

from __future__ import annotations

import json
from typing import get_args

from tests.schedules.faults import FaultKind
from tests.schedules.figures import PAGE, SUMMARY, page_with, text


def test_the_page_has_the_figures_of_the_summary() -> None:
    summary = json.loads(SUMMARY.read_text())
    page = PAGE.read_text()
    assert page_with(summary, page) == page
    assert summary["failed"] == []


def test_every_kind_of_fault_is_shown() -> None:
    shown = text(json.loads(SUMMARY.read_text()))
    assert all(f"`{kind}`" in shown for kind in get_args(FaultKind))
