"""Schedules can be repeated exactly, and find what they should find."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.schedules.planted_bugs import PLANTED

if TYPE_CHECKING:
    from pathlib import Path

#: Seeds within which each planted bug must be found.
SEEDS = 200


def run(output: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Run the command; returns its exit code, its output and its summary."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.schedules", "--output", str(output), *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert output.exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, json.loads(output.read_text())


@pytest.mark.timeout(600)
def test_a_seed_is_repeated_exactly(tmp_path: Path) -> None:
    code, text, summary = run(tmp_path / "summary.json", "--seeds", "12", "--repeat", "2")
    assert code == 0, text
    assert summary["schedules"] == 24
    assert summary["failed"] == []
    assert summary["kills"] > 0


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_planted_bugs_are_found(tmp_path: Path) -> None:
    code, text, found = run(tmp_path / "found.json", "--planted", "all", "--seeds", str(SEEDS))
    assert found.keys() == PLANTED.keys()
    assert [name for name, first in found.items() if first is None] == [], text
    assert code == 0
