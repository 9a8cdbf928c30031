"""Every test that the documentation names as evidence exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "concepts" / "threats.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    """Return the cells of each threat."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in found if row[0].strip() != "threat"]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_threat_has_a_control_an_existing_test_and_a_residual_risk(row: list[str]) -> None:
    assert len(row) == 4
    assert all(row)
    named = NAMED.findall(row[2])
    assert named
    for file, test in named:
        assert test.startswith("test_")
        assert test in functions(ROOT / file)


def test_all_threats_are_checked() -> None:
    assert len(rows()) > 15


def test_the_security_policy_links_to_pages_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((docs/[^)#]+)", text)
    assert links
    assert all((ROOT / link).is_file() for link in links)
