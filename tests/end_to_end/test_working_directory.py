"""The parties that `florist demo` starts never import from the working directory."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

from florist.cli.party_processes import party_command
from tests.support.parties import ROLES, Workspace

if TYPE_CHECKING:
    from pathlib import Path

_POISON = "raise RuntimeError('imported from the working directory')\n"


def test_modules_in_the_working_directory_are_ignored(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for module in ("torch.py", "numpy.py", "florist/__init__.py", "logging/__init__.py"):
        poisoned = elsewhere / module
        poisoned.parent.mkdir(parents=True, exist_ok=True)
        poisoned.write_text(_POISON)
    parties = Workspace.create(tmp_path / "parties")
    with ExitStack() as stack:
        started = []
        for role in ROLES:
            party = subprocess.Popen(
                party_command(role, parties.directory, "align"),
                cwd=elsewhere,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(party.wait)
            stack.callback(party.kill)
            started.append(party)
        for party in started:
            _, log = party.communicate(timeout=120)
            assert party.returncode == 0, log
    parties.assert_aligned()
