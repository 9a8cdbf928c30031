"""Freed memory is kept within a loop and returned after it."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys

import numpy as np
import pytest

from florist.common.core.allocator import keep_freed_memory

#: Size of each array in the loop: too small for numpy to request huge pages.
BYTES = 2 << 20

_ROUNDS = """
import resource, sys
import numpy as np
from contextlib import nullcontext
from florist.common.core.allocator import keep_freed_memory, return_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

return_freed_memory()
with keep_freed_memory() if sys.argv[1] == "kept" else nullcontext():
    np.ones(2 << 20, np.uint8)
    before = faults()
    for _ in range(20):
        np.ones(2 << 20, np.uint8)
    print(faults() - before)
"""


def faults_of_a_loop(how: str) -> int:
    """Return the number of pages mapped for 20 arrays of 2 MB, one after the other."""
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_loop_keeps_its_pages() -> None:
    pages = 20 * BYTES // resource.getpagesize()
    assert faults_of_a_loop("kept") < pages / 10
    assert faults_of_a_loop("returned") > pages / 2


def test_the_garbage_collector_skips_existing_objects_within_the_loop() -> None:
    before = gc.get_freeze_count()
    with keep_freed_memory():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
    assert np.ones(3).sum() == 3
