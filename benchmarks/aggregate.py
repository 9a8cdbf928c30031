"""The label aggregate: what the sums under encryption cost both parties.

    python benchmarks/aggregate.py
    python benchmarks/aggregate.py --people 137000 --columns 39 --coordinates 2240 --json

Both parties run one after the other in this process, on `--threads` threads. The passive party has
a part of the people, each with one coordinate per column. The reference, measured in the same run,
is one multiplication of the generator by a scalar, without encoding the result:
`..._generator_multiplications_per_person` says how many of them fit into the CPU time per person.
The projection multiplies the CPU time per person, to which that per coordinate is added once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from florist.common.groups import kernels
from florist.common.groups.parallel import Threads
from florist.common.groups.ristretto255_arrays import generator, multiply_base
from florist.common.label_aggregate import LabelEncryptor, SumCollector

if TYPE_CHECKING:
    from collections.abc import Iterator

#: People per message.
CHUNK = 16_384
#: The number of people of the projection.
PROJECTED = 10_000_000


@dataclass
class Cost:
    """Seconds of one step, by the clock and of all cores."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the time of the block."""
        started, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - started
        self.cpu_seconds += time.process_time() - cpu


@dataclass(frozen=True)
class Result:
    """The result, printed as JSON."""

    kernels: bool
    threads: int
    people: int
    own_people: int
    columns: int
    coordinates: int
    bound: int
    #: By step, in the order of the protocol.
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    active_to_passive_bytes: int
    passive_to_active_bytes: int
    #: CPU time per person: encryption of one, and decoding and additions of one.
    active_cpu_us_per_person: float
    passive_cpu_us_per_person: float
    #: The reference.
    generator_multiplication_cpu_us: float
    active_generator_multiplications_per_person: float
    passive_generator_multiplications_per_person: float
    projected_people: int
    projected_active_cpu_seconds: float
    projected_passive_cpu_seconds: float
    projected_bytes: int


def reference(threads: Threads, count: int = 8192) -> float:
    """Return the CPU seconds of one multiplication of the generator; the best of three."""
    scalars = np.frombuffer(os.urandom(32 * count), np.uint8).reshape(-1, 32)
    best = float("inf")
    for _ in range(3):
        cost = Cost()
        with cost.measured():
            threads.map_slices(
                lambda start, stop: multiply_base(generator(), scalars[start:stop]), count, 2048
            )
        best = min(best, cost.cpu_seconds)
    return best / count


def run(arguments: argparse.Namespace, threads: Threads) -> Result:
    """Run the protocol once, and check the result."""
    people, columns, k = arguments.people, arguments.columns, arguments.coordinates
    rng = np.random.default_rng(0)
    values = rng.integers(-64, 65, people)
    own = rng.random(people) < arguments.own
    coordinates = rng.integers(0, k, (int(own.sum()), columns)).astype(np.int32)
    noise = np.round(rng.normal(0, 2000, k)).astype(np.int64)
    bound = 64 * people + 100_000
    one = reference(threads)

    names = ("encrypt", "add", "request", "answer", "finish")
    costs = {name: Cost() for name in names}
    active = LabelEncryptor(os.urandom(32), b"benchmark", threads)
    passive = SumCollector(os.urandom(32), b"benchmark", active.public_key, k, threads)
    sent = len(active.public_key)
    done = 0
    for start in range(0, people, CHUNK):
        part = slice(start, min(start + CHUNK, people))
        rows = np.flatnonzero(own[part])
        own_part = coordinates[done : done + len(rows)]
        done += len(rows)
        with costs["encrypt"].measured():
            ciphertexts = active.encrypt(values[part], start)
        sent += ciphertexts.nbytes
        with costs["add"].measured():
            passive.add(ciphertexts, own_part, rows)
    with costs["request"].measured():
        request = passive.request()
    with costs["answer"].measured():
        answer = active.answer(request, noise.tolist())
    with costs["finish"].measured():
        sums = passive.finish(answer, bound)
    expected = np.zeros(k, np.int64)
    for column in coordinates.T:
        expected += np.bincount(column, values[own], k).astype(np.int64)
    assert (sums == expected + noise).all()

    encrypting, adding = (costs[name].cpu_seconds / people for name in ("encrypt", "add"))
    more = PROJECTED / people
    fixed = {name: costs[name].cpu_seconds for name in ("request", "answer", "finish")}
    return Result(
        kernels=kernels.native is not None,
        threads=threads.count,
        people=people,
        own_people=int(own.sum()),
        columns=columns,
        coordinates=k,
        bound=bound,
        seconds={name: round(cost.seconds, 3) for name, cost in costs.items()},
        cpu_seconds={name: round(cost.cpu_seconds, 3) for name, cost in costs.items()},
        active_to_passive_bytes=sent + answer.nbytes,
        passive_to_active_bytes=request.nbytes,
        active_cpu_us_per_person=round(encrypting * 1e6, 2),
        passive_cpu_us_per_person=round(adding * 1e6, 2),
        generator_multiplication_cpu_us=round(one * 1e6, 2),
        active_generator_multiplications_per_person=round(encrypting / one, 2),
        passive_generator_multiplications_per_person=round(adding / one, 2),
        projected_people=PROJECTED,
        projected_active_cpu_seconds=round(encrypting * PROJECTED + fixed["answer"], 1),
        projected_passive_cpu_seconds=round(
            adding * PROJECTED + fixed["request"] + fixed["finish"], 1
        ),
        projected_bytes=round(sent * more) + answer.nbytes + request.nbytes,
    )


def main() -> None:
    """Print a line for each figure, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--people", type=int, default=20_000, help="size of the union")
    parser.add_argument("--own", type=float, default=0.75, help="share of the passive party")
    parser.add_argument("--columns", type=int, default=39)
    parser.add_argument("--coordinates", type=int, default=2240)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    threads = Threads(arguments.threads)
    try:
        result = asdict(run(arguments, threads))
    finally:
        threads.close()
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for key, value in result.items():
        print(f"{key:>46}  {value:,}" if isinstance(value, int) else f"{key:>46}  {value}")


if __name__ == "__main__":
    main()
