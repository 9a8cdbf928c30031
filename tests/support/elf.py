"""Which protections against memory errors a compiled library has, as `readelf` shows them."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def missing_protections(library: Path) -> list[str]:
    """Return the names of the protections that the library lacks; skip without `readelf`."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("needs readelf (binutils) to inspect the compiled kernels")
    shown = subprocess.run(
        [readelf, "--wide", "--segments", "--dynamic", "--dyn-syms", str(library)],
        check=True,
        capture_output=True,
        text=True,
        env={"LC_ALL": "C"},
        timeout=60,
    ).stdout
    stack = re.search(r"GNU_STACK .* (RWE|RW) ", shown)
    found = {
        "stack protector": "__stack_chk_fail" in shown,
        "read-only relocations": "GNU_RELRO" in shown,
        "relocations resolved at load time": "BIND_NOW" in shown,
        "non-executable stack": stack is not None and stack[1] == "RW",
    }
    return [name for name, is_there in found.items() if not is_there]
