"""Memory that is freed: kept within a loop, given back after it."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys

import numpy as np
import pytest

from florist.common.core import allocator as freed_memory

#: Of each array of the loop: too few for numpy to ask for huge pages.
BYTES = 2 << 20

_ROUNDS = """
import resource, sys
import numpy as np
from contextlib import nullcontext
from florist.common.core import allocator as freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

freed_memory.give_back()
with freed_memory.kept() if sys.argv[1] == "kept" else nullcontext():
    np.ones(2 << 20, np.uint8)
    before = faults()
    for _ in range(20):
        np.ones(2 << 20, np.uint8)
    print(faults() - before)
"""


def faults_of_a_loop(how: str) -> int:
    """Pages that the system had to map for 20 arrays of 2 MB, one after the other."""
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_a_loop_keeps_its_pages() -> None:
    pages = 20 * BYTES // resource.getpagesize()
    assert faults_of_a_loop("kept") < pages / 10
    assert faults_of_a_loop("given back") > pages / 2


def test_the_collector_leaves_what_was_there_and_takes_it_up_again() -> None:
    before = gc.get_freeze_count()
    with freed_memory.kept():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
    assert np.ones(3).sum() == 3
