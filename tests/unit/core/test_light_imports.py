"""Core and settings load quickly: they import none of the heavy libraries."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import importlib, pkgutil, sys
for package in ("florist.common.core", "florist.common.settings"):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
heavy = {"torch", "grpc", "matplotlib", "pyarrow", "numpy", "ray", "rich"}
print(*sorted(heavy & sys.modules.keys()))
"""


def test_no_heavy_library_is_imported() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == ""
