"""Alignment of two real processes over mutual TLS on localhost, compared with bare exponentiations.

    python benchmarks/psu.py --ids 131072 --json
    python benchmarks/psu.py --ids 4194304 --memory-limit 512MB
    python benchmarks/psu.py --ids 1000000 --unequal 1000
    python benchmarks/psu.py --ids 131072 --executor ray --workers 1
    python benchmarks/psu.py --ids 131072 --executor ray --workers 2 --branches 2
    python benchmarks/psu.py --ids 131072 --compare-counts 3
    python benchmarks/psu.py --ids 1048576 --union merged --both
    python -m benchmarks.psu --ids 1048576 --link 100mbit --delay 0.02

`cpu_s` is the CPU time of both parties from start to exit, everything included: starting Python,
reading, hashing, validating, sorting, TLS. `raw_s` is the time of the same number of
exponentiations in a bare loop with the same engine on one core, measured in the same run (above
--raw-limit it is extrapolated from a sample). Their ratio is the overhead of the protocol.

With `--executor ray` each party has its own cluster on this machine, which starts and ends with it.
`cpu_s` then includes the cluster's processes, as far as Ray has waited for them to exit;
`process_cpu_s` of each party is that of its own process, and `workers_cpu_s` that of its workers or
branches, sampled shortly before they end. With `--branches` the branches align, not the process.

With `--both` it aligns by the other protocol too, in the same run, and reports the ratios to it.
`bytes_per_id` counts what both parties send, and the IDs of both.

With `--link` (as root) each party is in a network namespace of its own, connected by a link of this
rate with `--delay` seconds in each direction; it runs on the same cores. `transfer_s` is the time
that the bytes of the busier direction take at that rate: no alignment can be faster.

With `--compare-counts N` it also aligns N times with private counts and planted pairs and N times
without either, in alternation, and reports the ratio of the CPU times, in total and in pairs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import psutil
import yaml

from florist.cli.init import Names, write_first_files
from florist.common.core.ports import free_port
from florist.common.groups import make_group
from florist.common.psu.hashed_ids import DummyIds
from florist.common.psu.union_protocol import Sizes
from florist.common.psu.union_protocol import exponentiations as exponentiations_of
from florist.common.session.run_directory import RunDirectory
from florist.common.settings.loader import load_config
from florist.experiments.sample_data import IdSample

if __name__ == "__main__" and __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for the lab of the fault tests

from tests.faults.lab import ADDRESSES, Lab, Quality

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.core.roles import RoleName

NAMES = Names(active="bank", passive="telco")
ROLES: tuple[RoleName, RoleName] = ("active", "passive")
TIME_LIMIT = 24 * 3600
#: Seconds between samples of a party's CPU time.
SAMPLE_INTERVAL = 0.1
#: Every so many samples, its workers are sampled too.
SAMPLES_PER_WORKER_SAMPLE = 5


@dataclass(frozen=True)
class Usage:
    """The resources that one party's processes used."""

    exit_code: int
    cpu_s: float
    #: Of its own process, without its cluster.
    process_cpu_s: float
    #: Of its workers or branches on a cluster: CPU in total, memory of the largest.
    workers_cpu_s: float
    workers_peak_rss_mb: float
    peak_rss_mb: float


@dataclass(frozen=True)
class Result:
    """The result, printed as JSON, in seconds and megabytes; `bytes_sent` is of both parties."""

    ids: int
    #: IDs of the active party; the same as `ids` without --unequal.
    active_ids: int
    memory_limit: str
    #: The protocol, and who merges: the keys of the agreement and of alignment.json.
    union: str
    merging: str | None
    group: str
    engine: str
    executor: str
    branches: int
    wall_s: float
    cpu_s: float
    bytes_sent: int
    bytes_per_id: float
    peak_rss_mb: float
    start_rss_mb: float
    exponentiations: int
    exponentiations_per_id: float
    raw_s: float
    ratio: float
    wall_per_cpu: float
    cpu_us_per_id: float
    union_s: float
    #: Wall time of each part, at the slower party.
    parts_s: dict[str, float]
    #: CPU seconds and peak megabytes of each party, in total and by process.
    parties: dict[str, dict[str, float]]
    #: CPU time with private counts and planted pairs, divided by that without: of all alignments,
    #: and of each pair of them. Empty without --compare-counts.
    private_counts: dict[str, float | list[float]]
    #: The CPU time of this protocol divided by that of Algorithm 1 in the same run, in total and
    #: for each party; with --both.
    over_algorithm_1: float | None = None
    over_algorithm_1_of: dict[str, float] | None = None
    #: With --link: its rate, delay in seconds, and the time for the bytes of the busier direction.
    link: str | None = None
    delay_s: float = 0.0
    transfer_s: float | None = None


def main() -> None:
    """Run the benchmark and print the result."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="florist-bench-") as folder:
        result = measure(Path(folder), arguments)
    if arguments.both:
        result = compared(result, arguments)
    if not arguments.json:
        for key, value in asdict(result).items():
            print(f"{key:>16}  {value:,}" if isinstance(value, int) else f"{key:>16}  {value}")
        return
    print(json.dumps(asdict(result)))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--ids", type=int, default=1 << 17, help="IDs per side; half of the smaller side are shared"
    )
    parser.add_argument(
        "--unequal", type=int, metavar="N", help="IDs of the active party, instead of --ids"
    )
    parser.add_argument(
        "--memory-limit", default="2GB", help="alignment.memory_limit of each party"
    )
    parser.add_argument("--union", default="merged", choices=["merged", "algorithm-1"])
    parser.add_argument(
        "--both", action="store_true", help="measure Algorithm 1 as well, and compare"
    )
    parser.add_argument("--group", default="x25519")
    parser.add_argument("--engine", default="auto")
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of each party; 0 for all cores"
    )
    parser.add_argument("--executor", default="local", choices=["local", "ray"])
    parser.add_argument(
        "--workers", type=int, default=1, help="workers of each party, with --executor ray"
    )
    parser.add_argument("--branches", type=int, default=1, help="branches of each party")
    parser.add_argument(
        "--raw-limit", type=int, default=1 << 20, help="maximum exponentiations in the bare loop"
    )
    parser.add_argument(
        "--compare-counts",
        type=int,
        default=0,
        metavar="N",
        help="compare N alignments with private counts and planted pairs with N without",
    )
    parser.add_argument("--link", metavar="RATE", help="rate of the link, such as 100mbit")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds in each direction")
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    return parser.parse_args()


def measure(folder: Path, arguments: argparse.Namespace) -> Result:
    """Run one alignment, then the bare loop."""
    if arguments.link is None:
        return measure_on(None, folder, arguments)
    with Lab() as lab:
        lab.set_rate(arguments.link)
        lab.set_quality(Quality(delay=arguments.delay))
        return measure_on(lab, folder, arguments)


def measure_on(lab: Lab | None, folder: Path, arguments: argparse.Namespace) -> Result:
    """Measure on this host, or on those of a lab."""
    start = run([*party("active", folder), "--help"])
    host = "127.0.0.1" if lab is None else ADDRESSES["active"]
    active_ids = arguments.unequal or arguments.ids
    sizes = IdSample(active_ids, arguments.ids, min(active_ids, arguments.ids) // 2)
    # In another process, because this one must stay small: see `run`.
    writer = multiprocessing.get_context("spawn").Process(
        target=write_first_files, args=(folder, NAMES, f"{host}:{free_port()}", sizes)
    )
    writer.start()
    writer.join()
    for role in ROLES:
        path = folder / f"{role}.yml"
        text = path.read_text()
        text = text.replace("protocol: merged", f"protocol: {arguments.union}")
        text = text.replace("group: x25519", f"group: {arguments.group}")
        text = text.replace("engine: auto", f"engine: {arguments.engine}")
        text = text.replace("memory_limit: 2GB", f"memory_limit: {arguments.memory_limit}")
        text = text.replace("executor: local", f"executor: {arguments.executor}")
        text = text.replace("ray_address: auto", "ray_address: local")
        text = text.replace("branches: 1", f"branches: {arguments.branches}")
        text = text.replace("ray_workers: 0", f"ray_workers: {arguments.workers}")
        path.write_text(text.replace("threads: 0", f"threads: {arguments.threads}"))
    usages, wall = align(folder, lab)
    summaries = [
        RunDirectory(load_config(folder / f"{role}.yml").run_directory).load_alignment().summary
        for role in ROLES
    ]
    first = summaries[0]
    padded = Sizes(first.sizes.own, first.sizes.peer)
    shared = padded.active + padded.passive - (first.sizes.union - first.sizes.planted)
    exponentiations = exponentiations_of(first.merging, padded, shared)
    everybody = active_ids + arguments.ids
    cpu = sum(usage.cpu_s for usage in usages)
    raw = bare_loop(arguments.group, first.engine, exponentiations, arguments.raw_limit)
    return Result(
        ids=arguments.ids,
        active_ids=active_ids,
        memory_limit=arguments.memory_limit,
        union=arguments.union,
        merging=first.merging,
        group=arguments.group,
        engine=first.engine,
        executor=arguments.executor,
        branches=arguments.branches,
        wall_s=round(wall, 2),
        cpu_s=round(cpu, 2),
        bytes_sent=sum(summary.bytes_sent for summary in summaries),
        bytes_per_id=round(sum(summary.bytes_sent for summary in summaries) / everybody, 1),
        peak_rss_mb=max(usage.peak_rss_mb for usage in usages),
        start_rss_mb=start.peak_rss_mb,
        exponentiations=exponentiations,
        exponentiations_per_id=round(exponentiations / everybody, 3),
        raw_s=round(raw, 2),
        ratio=round(cpu / raw, 3),
        wall_per_cpu=round(wall / cpu, 3),
        cpu_us_per_id=round(cpu / everybody * 1e6, 2),
        union_s=max(summary.seconds["union"] for summary in summaries),
        parts_s={
            part: max(summary.seconds[part] for summary in summaries) for part in first.seconds
        },
        parties={
            role: {
                "cpu_s": round(usage.cpu_s, 2),
                "process_cpu_s": round(usage.process_cpu_s, 2),
                "workers_cpu_s": round(usage.workers_cpu_s, 2),
                "workers_peak_rss_mb": usage.workers_peak_rss_mb,
                "peak_rss_mb": usage.peak_rss_mb,
            }
            for role, usage in zip(ROLES, usages, strict=True)
        },
        private_counts=compare_counts(folder, arguments.compare_counts),
        link=arguments.link,
        delay_s=arguments.delay,
        transfer_s=None
        if arguments.link is None
        else round(max(s.bytes_sent for s in summaries) / bytes_per_second(arguments.link), 2),
    )


def bytes_per_second(rate: str) -> float:
    """Convert a rate such as 100mbit."""
    return float(rate.removesuffix("mbit")) * 1e6 / 8


def compared(result: Result, arguments: argparse.Namespace) -> Result:
    """Return the result with its ratios to Algorithm 1."""
    other = argparse.Namespace(
        **{**vars(arguments), "union": "algorithm-1", "compare_counts": 0, "raw_limit": 1}
    )
    with tempfile.TemporaryDirectory(prefix="florist-bench-") as folder:
        reference = measure(Path(folder), other)
    return replace(
        result,
        over_algorithm_1=round(result.cpu_s / reference.cpu_s, 3),
        over_algorithm_1_of={
            role: round(result.parties[role]["cpu_s"] / reference.parties[role]["cpu_s"], 3)
            for role in ROLES
        },
    )


def align(folder: Path, lab: Lab | None = None) -> tuple[list[Usage], float]:
    """Run both parties; return their resources and the wall time."""
    started = time.monotonic()
    usages = run_both([party(role, folder, lab) for role in ROLES])
    wall = time.monotonic() - started
    if any(usage.exit_code for usage in usages):
        sys.exit(f"a party failed: {usages}")
    return usages, wall


def compare_counts(folder: Path, rounds: int) -> dict[str, float | list[float]]:
    """Return the ratios of the CPU times with and without private counts and planted pairs."""
    if not rounds:
        return {}
    configs = {role: yaml.safe_load((folder / f"{role}.yml").read_text()) for role in ROLES}
    kinds = {"private": {}, "exact": {"privacy": None, "planted_pairs": 0}}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        # Each kind is first in turn, so that a change of the machine's speed affects both.
        for kind in sorted(kinds, reverse=bool(number % 2)):
            for role, config in configs.items():
                config["agreement"]["union"] |= {"privacy": {}, "planted_pairs": 64} | kinds[kind]
                config["run_directory"] = str(folder / f"{kind}-{number}" / role)
                config["privacy"] |= {"budget": None}
                (folder / f"{role}.yml").write_text(yaml.safe_dump(config))
            cpu[kind].append(sum(usage.cpu_s for usage in align(folder)[0]))
    pairs = [
        round(private / exact, 4)
        for private, exact in zip(cpu["private"], cpu["exact"], strict=True)
    ]
    return {"ratio": round(sum(cpu["private"]) / sum(cpu["exact"]), 4), "of_each_pair": pairs}


def party(role: RoleName, folder: Path, lab: Lab | None = None) -> list[str]:
    """Return the command of a party."""
    command = [] if lab is None else ["ip", "netns", "exec", lab.namespaces[role]]
    command += [sys.executable, "-m", "florist.cli.entry", "--role", role]
    command += ["--stage", "align", "--log-format", "text"]
    return [*command, "--config", str(folder / f"{role}.yml")]


def run(command: list[str]) -> Usage:
    """Run a command, and return the resources of the process and of those it waited for.

    The kernel reports at least this process's own size as the child's peak, so it must stay small.
    """
    # As installed packages do, compiled modules are kept for the next start.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    watched, alone = psutil.Process(process.pid), 0.0
    workers: dict[int, float] = {}
    largest = 0
    # Sampled, because at the end only the sum with its children is available.
    for sample in count():
        ended = os.wait4(process.pid, os.WNOHANG)
        if ended[0] != 0:
            break
        times = watched.cpu_times()
        alone = max(alone, times.user + times.system)
        if sample % SAMPLES_PER_WORKER_SAMPLE == 0:
            for worker in workers_of(watched):
                with suppress(psutil.Error):
                    times = worker.cpu_times()
                    workers[worker.pid] = times.user + times.system
                    largest = max(largest, worker.memory_info().rss)
        time.sleep(SAMPLE_INTERVAL)
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    return Usage(
        process.returncode,
        usage.ru_utime + usage.ru_stime,
        alone,
        sum(workers.values()),
        round(largest / 2**20, 1),
        round(usage.ru_maxrss / 1024, 1),
    )


def workers_of(party: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the workers and branches of the party's Ray cluster."""
    with suppress(psutil.Error):
        for process in party.children(recursive=True):
            with suppress(psutil.Error):
                if process.name().startswith(("ray::Worker", "ray::Branch")):
                    yield process


def run_both(commands: list[list[str]]) -> list[Usage]:
    """Run the commands concurrently."""
    usages: dict[int, Usage] = {}
    threads = [
        Thread(target=lambda i=i, c=c: usages.update({i: run(c)}), daemon=True)
        for i, c in enumerate(commands)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIME_LIMIT)
    return [usages[i] for i in range(len(commands))]


def bare_loop(group_name: str, engine: str, exponentiations: int, limit: int) -> float:
    """Return the CPU seconds of this many exponentiations on one thread, and nothing else."""
    group = make_group(group_name, engine, threads=1)
    rows = 1 << 13 if group_name == "x25519" else 1 << 8
    elements = group.hash_ids(DummyIds(bytes(32), rows).rows(0, rows))
    exponent = group.random_exponent()
    rounds = max(1, min(exponentiations, limit) // len(elements))
    before = cpu_seconds()
    for _ in range(rounds):
        elements = group.power(elements, exponent)
    group.close()
    return (cpu_seconds() - before) * exponentiations / (rounds * len(elements))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those it waited for."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
