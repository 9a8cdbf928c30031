"""CPU time of a party's own process for the heavy work of a union, done locally and with Ray.

    python benchmarks/executors.py --rows 1048576 --json

It measures the CPU time of this process, all threads included, in µs per element. What remains here
when a cluster does the work limits how many workers one party can keep busy: `cores_fed` is the
number of cores that one core here can supply with work. Workers run on this machine, and their CPU
time is not counted; `ray_per_s` is the throughput in wall time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from florist.common.cluster.ray_executor import RayExecutor
from florist.common.groups import make_group
from florist.common.psu.executor import LocalExecutor
from florist.common.psu.hashed_ids import DummyIds
from florist.common.psu.set_stream import rows_per_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from florist.common.psu.executor import Executor


@dataclass(frozen=True)
class Cost:
    """The cost of one kind of work, in µs of this process's CPU per element."""

    local_us: float
    ray_us: float
    cores_fed: float
    #: Elements per second of wall time.
    ray_per_s: int


def main() -> None:
    """Run the benchmark and print the costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--group", default="x25519")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    arguments = parser.parse_args()
    costs = measure(arguments.group, arguments.rows, arguments.workers)
    if arguments.json:
        print(json.dumps({kind: asdict(cost) for kind, cost in costs.items()}))
        return
    for kind, cost in costs.items():
        print(f"{kind:>25}  {cost}")


def measure(group_name: str, rows: int, workers: int) -> dict[str, Cost]:
    """Measure each kind of work with both executors on the same elements."""
    group = make_group(group_name, threads=1)
    per_chunk = rows_per_chunk(group.width)
    chunks = max(1, rows // per_chunk)
    # The cost does not depend on the elements, so one chunk is repeated.
    ids = DummyIds(bytes(32), per_chunk).rows(0, per_chunk)
    elements = group.hash_ids(ids)
    exponent = group.random_exponent()
    unsorted = np.random.default_rng(1).integers(
        0, 256, (chunks * per_chunk, group.width), dtype=np.uint8
    )

    kinds: dict[str, Callable[[Executor], object]] = {
        "hash": lambda executor: exhaust(executor.hashed(repeat(ids, chunks))),
        "validate and exponentiate": lambda executor: exhaust(
            executor.raised(repeat(elements, chunks), exponent, check=True)
        ),
        "sort": lambda executor: executor.sorted(unsorted),
    }
    local, remote = LocalExecutor(group), RayExecutor(group, address="local", workers=workers)
    try:
        costs = {}
        for kind, work in kinds.items():
            here, _ = time_of(work, local)
            there, clock = time_of(work, remote)
            count = chunks * per_chunk
            costs[kind] = Cost(
                local_us=round(here / count * 1e6, 3),
                ray_us=round(there / count * 1e6, 3),
                cores_fed=round(here / there, 1),
                ray_per_s=round(count / clock),
            )
        return costs
    finally:
        remote.close()
        group.close()


def exhaust(stream: Iterable[object]) -> None:
    """Consume a stream."""
    deque(stream, maxlen=0)


def time_of(work: Callable[[Executor], object], executor: Executor) -> tuple[float, float]:
    """Return the CPU seconds of this process, and the wall time."""
    before = time.process_time(), time.monotonic()
    work(executor)
    return time.process_time() - before[0], time.monotonic() - before[1]


if __name__ == "__main__":
    main()
