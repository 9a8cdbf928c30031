"""Runs the tutorial and writes the real output of its commands into the page.

python -m tests.tutorial.update
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.tutorial.page import run_page, updated
from tests.tutorial.test_first_model import PAGE

if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        commands = run_page(text, Path(folder), {})
    # A service logs its end only when it is stopped; the page shows it while it runs.
    PAGE.write_text(updated(text, commands), encoding="utf-8")
