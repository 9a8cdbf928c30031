"""Runs many schedules in several processes, and sums up what happened."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TextIO

from tests.schedules.planted_bugs import PLANTED
from tests.schedules.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.schedules.scenario import Scenarios
    from tests.schedules.world import Outcome

#: Seconds after which a schedule that hangs ends its process, with a traceback.
_PATIENCE = 120

#: Failures that are shown in full.
_SHOWN = 3


@dataclass(frozen=True)
class Task:
    """The seeds to run, and how."""

    first: int
    count: int
    processes: int
    scenario: str | None = None
    #: The name of a planted bug, which ends the task as soon as it is found.
    planted: str | None = None
    #: How often each seed is run, in different processes; the traces must be the same.
    repeat: int = 1
    verbose: bool = False


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code: 1 if a schedule failed."""
    task, output, planted = _parsed(arguments)
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="schedules-", dir=memory if memory.is_dir() else None))
    started = time.monotonic()
    try:
        scenarios = warm_up(folder)
        warm = time.monotonic() - started
        if planted:
            return _search(planted, task, scenarios, folder, output)
        outcomes = list(_outcomes(task, scenarios, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _compare_traces(outcomes)
    summary = summed_up(outcomes) | {
        "first_seed": task.first,
        "seconds": round(time.monotonic() - started, 1),
        "seconds_to_start": round(warm, 1),
        "processes": task.processes,
    }
    text = json.dumps(summary, indent=2)
    if output is not None:
        output.write_text(text + "\n")
    _show(outcomes, verbose=task.verbose)
    print(text)  # noqa: T201 - a command
    missing = task.count * task.repeat - len(outcomes)
    if missing:
        print(f"{missing} schedules did not end")  # noqa: T201
    return 1 if missing or summary["failed"] else 0


def _search(
    planted: list[str], task: Task, scenarios: Scenarios, folder: Path, output: Path | None
) -> int:
    """Look for each planted bug; the result has the first seed that finds it, and what it says."""
    found: dict[str, dict[str, Any] | None] = {}
    for name in planted:
        search = replace(task, planted=name, scenario=PLANTED[name].scenario)
        failures = [each for each in _outcomes(search, scenarios, folder) if each["problem"]]
        first = min(failures, key=lambda each: int(each["seed"]), default=None)
        found[name] = first and {
            "seed": first["seed"],
            "scenario": first["scenario"],
            "problem": first["problem"].splitlines()[0],
        }
        print(f"{name}: {found[name] or 'not found'}")  # noqa: T201
    if output is not None:
        output.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(found.values()) else 1


def _compare_traces(outcomes: list[dict[str, Any]]) -> None:
    """Make a schedule fail that was not repeated exactly."""
    traces: dict[int, int] = {}
    for each in outcomes:
        if traces.setdefault(each["seed"], each["trace"]) != each["trace"]:
            each["problem"] = each["problem"] or "another trace when it was repeated"


def run_seed(seed: int, scenarios: Scenarios, root: Path, scenario: str | None = None) -> Outcome:
    """Run the schedule of a seed."""
    from tests.schedules.faults import Plan  # noqa: PLC0415 - after `install`
    from tests.schedules.scenario import SHARES  # noqa: PLC0415
    from tests.schedules.world import Schedule  # noqa: PLC0415

    draw = Random(f"{seed} scenario")
    drawn = draw.choices(list(SHARES), list(SHARES.values()))[0]
    name: Any = scenario or drawn
    plan = Plan.drawn(Random(f"{seed} plan"), scenarios.points[name])
    return Schedule(seed, name, scenarios, plan, root).run()


def summed_up(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what happened in all schedules."""
    failed = [each["seed"] for each in outcomes if each["problem"]]
    ends = Counter(
        "completed" if set(each["ends"].values()) == {"done"} else "rejected"
        for each in outcomes
        if not each["problem"]
    )
    return {
        "schedules": len(outcomes),
        "by_stage": _sorted(Counter(each["scenario"] for each in outcomes)),
        "completed_as_undisturbed": ends["completed"],
        "rejected_by_name_on_both_sides": ends["rejected"],
        "failed": failed,
        "faults": _sorted(Counter(fault for each in outcomes for fault in each["faults"])),
        "kills": sum(each["kills"] for each in outcomes),
        "flipped_bits": sum(each["flipped_bits"] for each in outcomes),
        "messages": sum(each["sent"] for each in outcomes),
        "operations": sum(each["points"] for each in outcomes),
        "thread_switches": sum(each["switches"] for each in outcomes),
        "simulated_hours": round(sum(each["seconds"] for each in outcomes) / 3600, 1),
    }


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


def _outcomes(task: Task, scenarios: Scenarios, folder: Path) -> Iterator[dict[str, Any]]:
    """Run the seeds in forked processes, each with its own folder."""
    workers = []
    for number in range(task.processes):
        results = folder / f"results-{number}.jsonl"
        results.write_text("")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if task.planted is not None:
                    PLANTED[task.planted].plant()
                with results.open("w") as file:
                    _work(task, number, scenarios, folder / f"worker-{number}", file)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        workers.append((child, results))
    for child, results in workers:
        os.waitpid(child, 0)
        yield from map(json.loads, results.read_text().splitlines())


def _seeds(task: Task, worker: int) -> Iterator[int]:
    """Yield the seeds of a process; repeated ones are those of other processes."""
    for turn in range(task.repeat):
        start = (worker + turn) % task.processes
        yield from range(task.first + start, task.first + task.count, task.processes)


def _work(task: Task, worker: int, scenarios: Scenarios, root: Path, results: TextIO) -> None:
    for seed in _seeds(task, worker):
        faulthandler.dump_traceback_later(_PATIENCE, exit=True)
        outcome = run_seed(seed, scenarios, root, task.scenario)
        faulthandler.cancel_dump_traceback_later()
        results.write(json.dumps(asdict(outcome)) + "\n")
        results.flush()
        if outcome.problem and task.planted:
            return


def _show(outcomes: list[dict[str, Any]], *, verbose: bool) -> None:
    failures = [each for each in outcomes if each["problem"]]
    shown = outcomes if verbose else failures[:_SHOWN]
    for each in shown:
        lines = [
            f"seed {each['seed']} ({each['scenario']}), trace {each['trace']:08x}: {each['ends']}",
            *each["log"],
            each["problem"] or "as it should",
            f"replay: make test-schedules FIRST={each['seed']} SEEDS=1 VERBOSE=1",
        ]
        print("\n".join(lines), end="\n\n")  # noqa: T201 - a command
    for each in failures[len(shown) :]:
        print(f"seed {each['seed']}: {each['problem'].splitlines()[0]}")  # noqa: T201


def _parsed(arguments: list[str]) -> tuple[Task, Path | None, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="number of schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--processes",
        type=int,
        # The threads of one process take turns, and between two turns the core is idle.
        default=2 * len(os.sched_getaffinity(0)),
        help="default: two per core",
    )
    parser.add_argument("--scenario", choices=["align", "train", "evaluate", "all"])
    parser.add_argument("--planted", choices=["all", *sorted(PLANTED)], help="a bug to be found")
    parser.add_argument("--repeat", type=int, default=1, help="how often to run each seed")
    parser.add_argument("--verbose", action="store_true", help="show every schedule")
    parser.add_argument("--output", type=Path, help="where to write the summary")
    given = parser.parse_args(arguments)
    task = Task(
        first=given.first,
        count=given.seeds,
        processes=max(1, min(given.processes, given.seeds)),
        scenario=given.scenario,
        repeat=given.repeat,
        verbose=given.verbose,
    )
    planted = sorted(PLANTED) if given.planted == "all" else [given.planted or ""]
    return task, given.output, [name for name in planted if name]
