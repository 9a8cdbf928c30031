"""The installed kernels have the protections against memory errors that setup.py asks for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.elf import missing_protections

SETUP = Path(__file__).parents[2] / "setup.py"


@pytest.mark.parametrize("package", ["groups", "oblivious_transfer", "privacy", "training"])
def test_installed_kernels_are_hardened(package: str) -> None:
    found = find_spec(f"florist.common.{package}._native")
    if found is None or found.origin is None:
        pytest.skip("the kernels are not installed: there was no C compiler")
    library = Path(found.origin)
    if library.stat().st_mtime < SETUP.stat().st_mtime:
        pytest.skip("the installed kernels are older than setup.py; run `make setup`")
    assert missing_protections(library) == []
