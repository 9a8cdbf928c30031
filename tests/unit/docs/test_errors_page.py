"""The generated table of errors: complete, and with advice for each."""

from __future__ import annotations

from pathlib import Path

from florist.common.core import errors
from tools.errors_page import error_types, page

ROOT = Path(__file__).parents[3]


def test_the_committed_table_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert committed == page(), "run: python -m tools.errors_page > docs/reference/errors.md"


def test_every_error_of_the_tree_is_in_it() -> None:
    shown = {kind.__name__ for kind, _ in error_types()}
    tree = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.FloristError)
    }
    assert tree - shown == {"FloristError", "PeerError"}, "these two only group others"


def test_errors_with_one_exit_code_agree_on_restarts() -> None:
    for kind, _ in error_types():
        assert kind.restart_helps == errors.restart_helps(kind.exit_code), kind


def test_each_says_what_happened_and_what_to_do() -> None:
    for kind, _ in error_types():
        assert kind.__doc__, kind
        assert kind.advice.endswith("."), kind
