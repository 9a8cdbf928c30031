"""A process ends cleanly while its background threads are in the native code of a library."""

from __future__ import annotations

import subprocess
import sys
import time
from threading import Event, Thread

import pytest

from florist.common.transport.grpc_prediction_client import _Source

PROGRAM = """
from itertools import count
import torch

def work(_=None):
    torch.nn.functional.embedding(torch.zeros(100, dtype=torch.long), torch.randn(10, 10))
    return torch.randn(100, 100) @ torch.randn(100, 100)


{start}
next(batches)
"""

#: Each starts background threads that work on when the main thread ends.
OWNERS = {
    "prefetched": """
from florist.common.core.prefetch import prefetched
batches = prefetched(map(work, count()), 10**6)
""",
    "priority pool": """
from florist.common.core.priority_pool import PriorityPool
pool = PriorityPool(2, "test")
batches = iter([pool.submit(work) for _ in range(10**4)])
""",
    "calls": """
from florist.common.transport.daemon_pool import DaemonPool
pool = DaemonPool(2)
batches = iter([pool.submit(work) for _ in range(10**4)])
""",
}


@pytest.mark.parametrize("owner", OWNERS)
def test_a_process_with_busy_threads_ends_cleanly(owner: str) -> None:
    """Otherwise it may abort: "terminate called without an active exception"."""
    program = PROGRAM.format(start=OWNERS[owner])
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_stream_ends_after_the_request_that_is_being_computed() -> None:
    begun, go_on, closed = Event(), Event(), Event()

    def requests() -> object:
        begun.set()
        go_on.wait(60)
        yield from ()

    def close() -> None:
        source.close()
        closed.set()

    source = _Source(requests(), lambda request: b"")  # type: ignore[arg-type]
    reader = Thread(target=next, args=(source, None))
    reader.start()
    assert begun.wait(60)
    closing = Thread(target=close)
    closing.start()
    time.sleep(0.05)
    assert not closed.is_set()
    go_on.set()
    assert closed.wait(60)
    reader.join()
    closing.join()
