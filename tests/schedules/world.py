"""One schedule: two parties and their supervisors, what goes wrong, and what must hold."""

from __future__ import annotations

import gc
import logging
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from weakref import WeakSet

from florist.api.verify import verify_run
from florist.common.core.errors import (
    FloristError,
    InternalError,
    PeerFailed,
    as_florist_error,
    restart_helps,
)
from florist.common.core.progress import NoProgress
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import STAGES, StageOptions
from florist.common.stages.stage import StageContext
from florist.common.stages.stage_table import STAGE_TABLE, incomplete_stages
from tests.schedules.disk import Disk, DiskPatches
from tests.schedules.invariants import Violation, check_results
from tests.schedules.network import ConnectedRole, Network
from tests.schedules.patching import SimulatedClock, simulating
from tests.schedules.promises import Promises
from tests.schedules.scenario import BOTH, ROLES
from tests.schedules.scheduler import START, Killed, Scheduler, Stuck

if TYPE_CHECKING:
    from florist.common.core.roles import RoleName
    from tests.schedules.faults import Fault, Plan
    from tests.schedules.patching import World
    from tests.schedules.scenario import ScenarioName, Scenarios

#: How often a supervisor starts a party again.
MOST_STARTS = 20

#: Virtual seconds that a run may take, and in addition for each fault.
_LONGEST = 600.0
_LONGEST_PER_FAULT = 600.0

#: The schedules that have not been deleted.
_in_memory: WeakSet[Schedule] = WeakSet()


@dataclass
class Party:
    """One party over all its incarnations."""

    role: RoleName
    disk: Disk
    starts: int = 0
    is_done: bool = False
    error: FloristError | None = None
    #: How the last incarnation was killed, while it is down.
    was_killed: bool = False
    #: Seconds until it is started again.
    restart_after: float = 0.0
    #: Bits to flip while it is down.
    rot: list[int] = field(default_factory=list)


@dataclass
class Outcome:
    """How a schedule ended."""

    seed: int
    scenario: ScenarioName
    trace: int
    points: int
    switches: int
    seconds: float
    #: done, or the name of each party's error.
    ends: dict[RoleName, str]
    faults: list[str]
    kills: int
    flipped_bits: int
    sent: int
    problem: str | None = None
    log: list[str] = field(default_factory=list)


class Schedule:
    """Runs one schedule."""

    def __init__(
        self, seed: int, scenario: ScenarioName, scenarios: Scenarios, plan: Plan, root: Path
    ) -> None:
        self.seed = seed
        self.scenario = scenario
        self.scenarios = scenarios
        self.plan = plan
        self.root = root
        self.random = Random(f"{seed} faults")
        self.scheduler = Scheduler(Random(f"{seed} order"), preemption=plan.preemption)
        self.network = Network(
            self.scheduler, Random(f"{seed} network"), plan.conditions, self._on_message
        )
        self.parties = {role: Party(role, Disk(root / role)) for role in ROLES}
        self.promises = Promises({role: each.disk for role, each in self.parties.items()})
        self.network.on_send = self.promises.on_send
        self.points = 0
        self.kills = 0
        self.flipped = 0
        self.happened: list[str] = []
        self._waiting = list(plan.faults)
        self._world: World | None = None
        self.log = _Log(self)
        _in_memory.add(self)

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run the schedule to its end and check what must hold."""
        self.scenarios.prepare(self.scenario, self.root)
        for party in self.parties.values():
            party.disk.settle()
        self.promises.start()
        disks = {role: party.disk for role, party in self.parties.items()}
        patches = DiskPatches(disks, self._on_disk, self.scheduler.sleep)
        self._open_before = _open_files()
        problem = None
        logger = logging.getLogger("florist")
        logger.addHandler(self.log)
        logging.getLogger("concurrent.futures").disabled = True  # it reports killed threads
        try:
            with simulating(self.scheduler, self.seed) as world, patches.installed():
                self._world = world
                try:
                    self.scheduler.run_all(self.scheduler.spawn("main", self._main, None))
                finally:
                    self.scheduler.abandon()
            self._check()
        except (Violation, Stuck) as found:
            problem = f"{type(found).__name__}: {found}"
        finally:
            logger.removeHandler(self.log)
        return Outcome(
            seed=self.seed,
            scenario=self.scenario,
            trace=self.scheduler.trace,
            points=self.points,
            switches=self.scheduler.switches,
            seconds=self.scheduler.now - START,
            ends={role: _end(party) for role, party in self.parties.items()},
            faults=self.happened,
            kills=self.kills,
            flipped_bits=self.flipped,
            sent=self.promises.sent,
            problem=problem,
            log=self.log.lines() if problem else [],
        )

    def _main(self) -> None:
        self.network.start()
        supervisors = [
            self.scheduler.spawn(f"supervisor {role}", partial(self._supervise, party), None)
            for role, party in self.parties.items()
        ]
        try:
            for supervisor in supervisors:
                self.scheduler.join(supervisor)
            self.network.forget()
            gc.collect()  # what a garbage collection would end, ends
            silence = self.scenarios.configs["active"].timeouts.silence
            self.scheduler.sleep(silence)
            # The threads of a party that stands still have had no time to end.
            while (frozen := self.scheduler.frozen_for()) > 0:
                self.scheduler.sleep(frozen + silence)
            if not any(supervisor.error for supervisor in supervisors):
                self._check_leaks()
        finally:
            self.network.close()

    def _supervise(self, party: Party) -> None:
        """Start a party until it is done, or ends with an error that a restart does not help."""
        while party.starts < MOST_STARTS:
            party.starts += 1
            task = self.scheduler.spawn(
                f"{party.role}:main", partial(self._run_party, party), party.role
            )
            self.scheduler.join(task)
            if task.error is not None:
                raise Violation(f"{party.role}: {task.error!r}") from task.error
            if party.was_killed:
                self._while_down(party)
            elif party.is_done or (party.error is not None and not self._helps(party)):
                return
            else:
                self.scheduler.sleep(1.0)

    def _run_party(self, party: Party) -> None:
        party.error = None
        role = ConnectedRole(BOTH[party.role], self.network)
        config = self.scenarios.config(party.role, self.root)
        options = StageOptions(plaintext=True)
        clock = SimulatedClock(self.scheduler)
        try:
            for name in incomplete_stages(config):
                if name in self.scenarios.stages(self.scenario):
                    stage = STAGE_TABLE[name].load()
                    stage(StageContext(role, config, options, NoProgress(), clock)).run()
        except Exception as error:  # noqa: BLE001 - as the command does
            party.error = as_florist_error(error)
            self.log.add(party.role, f"ends with {party.error!r}")
            if isinstance(party.error, InternalError):
                self.log.add(party.role, traceback.format_exc())
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = error.__context__ = error.__cause__ = None
        else:
            party.is_done = True

    def _while_down(self, party: Party) -> None:
        """What happens to a killed party until it is started again."""
        party.was_killed = False
        party.disk.faults.is_full = False  # the operator frees some space
        party.disk.restore()
        for number in party.rot:
            self._flip(party, number)
        party.rot.clear()
        self.promises.check_kept(party.role, may_be_lost=not self.plan.is_reparable)
        self.scheduler.sleep(party.restart_after)

    def _helps(self, party: Party) -> bool:
        """Whether to start a party again after its error, as a supervisor or its operator would."""
        assert party.error is not None
        if party.disk.faults.is_full:
            party.disk.faults.is_full = False  # the operator frees some space
            return True
        other = self.parties["passive" if party.role == "active" else "active"]
        if isinstance(party.error, InternalError):
            return False
        if isinstance(party.error, PeerFailed) and "disk-full" in self.happened:
            return True  # the operators have spoken to each other
        if other.error is not None and not restart_helps(other.error.exit_code):
            return False
        return restart_helps(party.error.exit_code) or party.error.will_reconnect

    # -- faults ------------------------------------------------------------------------------------

    def _on_message(self, what: str) -> None:
        self._point(what)

    def _on_disk(self, what: str, disk: Disk) -> None:
        del disk
        self._point(what)

    def _point(self, what: str) -> None:
        """Note an operation; faults that are due happen just before it."""
        task = self.scheduler.current
        if task is None:
            return
        if task.is_killed:
            raise Killed
        if task.party is None:
            return
        self.points += 1
        self.scheduler.note(what)
        while self._waiting and self._waiting[0].point <= self.points:
            self._happen(self._waiting.pop(0))
        if task.is_killed:
            raise Killed
        self.scheduler.pause()

    def _happen(self, fault: Fault) -> None:
        party = self.parties[fault.role]
        draw = Random(fault.draw)
        self.scheduler.note(fault.kind)
        self.log.add(fault.role, f"*** {fault.kind} {fault.seconds:.2f} s")
        self.happened.append(fault.kind)
        if fault.kind in ("cut", "half-open", "hold"):
            self._disturb_network(fault, draw)
        elif fault.kind in ("disk-full", "slow-disk", "lost-fsync"):
            self._disturb_disk(fault, party.disk)
        else:
            self._disturb_process(fault, party, draw)

    def _disturb_network(self, fault: Fault, draw: Random) -> None:
        match fault.kind:
            case "cut":
                self.network.cut(fault.seconds, notice=(draw.random(), draw.random()))
            case "half-open":
                notices = [(draw.random(), None), (None, draw.random()), (None, None)]
                self.network.cut(fault.seconds, notice=draw.choice(notices))
            case _:
                self.network.hold(fault.seconds)

    def _disturb_disk(self, fault: Fault, disk: Disk) -> None:
        match fault.kind:
            case "disk-full":
                disk.faults.is_full = True
            case "slow-disk":
                disk.faults.slowness = min(fault.seconds, 5.0)
            case _:
                disk.faults.loses_syncs = True

    def _disturb_process(self, fault: Fault, party: Party, draw: Random) -> None:
        match fault.kind:
            case "kill":
                self._kill(party, fault, power=False)
            case "power-failure":
                self._kill(party, fault, power=True)
            case "kill-both":
                for each in self.parties.values():
                    self._kill(each, fault, power=draw.random() < 0.5)
            case "freeze":
                self.scheduler.freeze(party.role, fault.seconds)
            case "clock-jump":
                assert self._world is not None
                self._world.clock_error[party.role] += draw.choice([-1e8, -1e4, -60, 60, 1e4, 1e8])
            case _:
                party.rot.append(fault.draw)
                self._kill(party, fault, power=False)

    def _kill(self, party: Party, fault: Fault, *, power: bool) -> None:
        if not self.scheduler.of(party.role) or party.was_killed:
            return
        self.kills += 1
        party.was_killed = True
        party.restart_after = 0.1 + fault.seconds
        party.disk.crash(Random(f"{fault.draw} {party.role}") if power else None)
        self.network.party_died(party.role, power=power)
        self.scheduler.kill(party.role)

    def _flip(self, party: Party, number: int) -> None:
        paths = sorted(
            str(path.relative_to(party.disk.root))
            for path in party.disk.root.rglob("*")
            if path.is_file() and path.stat().st_size
        )
        if paths:
            draw = Random(number)
            path = draw.choice(paths)
            bits = 8 * (party.disk.root / path).stat().st_size
            party.disk.flip(path, draw.randrange(bits))
            self.flipped += 1
            self.log.add(party.role, f"*** a bit of {path} has flipped")

    # -- what must hold ----------------------------------------------------------------------------

    def _check_leaks(self) -> None:
        if list(_in_memory) != [self]:
            raise Violation("an earlier schedule is still in memory, which slows down this one")
        for party in self.parties.values():
            left = self.scheduler.of(party.role)
            if left:
                names = ", ".join(task.name for task in left)
                raise Violation(f"threads are left: {names}\n{self.scheduler.report()}")
        open_files = [
            target
            for number, target in _open_files().items()
            if target.startswith(f"{self.root}/") and number not in self._open_before
        ]
        if open_files:
            raise Violation(f"files are left open: {', '.join(open_files)}")

    def _check_simulation(self) -> None:
        """Raise what was found while the schedule ran."""
        for task in self.scheduler.tasks:
            if task.party is None and isinstance(task.error, Violation):
                raise task.error
            if task.party is None and task.error is not None:
                raise Violation(f"the simulation failed: {task.error!r}") from task.error

    def _finds_damage(self) -> bool:
        """Whether `florist verify` reports a damaged result, which is right after bit rot only.

        It may report what is left of work folders that were being deleted at a power failure.
        """
        problems: list[str] = []
        for role in ROLES:
            runs = RunDirectory(self.scenarios.config(role, self.root).run_directory)
            results = (*map(runs.result, STAGES), runs.evaluation_alignment)
            starts = tuple(f"{folder}/" for folder in results)
            found = verify_run(runs.path).problems
            problems += [problem for problem in found if self.flipped or problem.startswith(starts)]
        if problems and not self.flipped:
            raise Violation("; ".join(problems))
        return bool(problems)

    def _check(self) -> None:
        self._check_simulation()
        if self.promises.broken:
            raise Violation("; ".join(self.promises.broken))
        longest = _LONGEST + _LONGEST_PER_FAULT * len(self.plan.faults)
        if self.scheduler.now - START > longest:
            raise Violation(f"the run took {self.scheduler.now - START:.0f} s")
        ends = {role: party.error for role, party in self.parties.items()}
        done = [party.is_done for party in self.parties.values()]
        if all(done):
            if self._finds_damage():
                return
            try:
                check_results(self.scenario, self.scenarios, self.root)
            except (FloristError, OSError, ValueError) as problem:
                raise Violation(f"a result cannot be read: {problem!r}") from problem
            return
        for role, error in ends.items():
            if isinstance(error, InternalError):
                raise Violation(f"{role}: {error!r}")
        if self.plan.is_reparable:
            raise Violation(f"the run was not completed: {ends}")
        if any(done) and not self._may_end_alone():
            raise Violation(f"only one party completed the run: {ends}")

    def _may_end_alone(self) -> bool:
        """Whether a party may be rejected after its peer has completed the run.

        A file that only it needs can be damaged, or its disk can lose what it had confirmed.
        """
        lost = {fault.role for fault in self.plan.faults if fault.kind == "lost-fsync"}
        rejected = {role for role, party in self.parties.items() if not party.is_done}
        return bool(self.flipped) or rejected <= lost


def _end(party: Party) -> str:
    return "done" if party.is_done else type(party.error).__name__


def _open_files() -> dict[str, str]:
    """Return the open files of this process: their paths by number."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            found[entry.name] = str(entry.readlink())
    return found


class _Log(logging.Handler):
    """Keeps what the parties log, to be shown if a schedule fails."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._records: list[tuple[float, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        task = self._schedule.scheduler.current
        party = task.party if task and task.party else ""
        if not (task and task.is_killed):
            self.add(party, record.getMessage())

    def add(self, party: str, text: str) -> None:
        self._records.append((self._schedule.scheduler.now - START, party, text))

    def lines(self) -> list[str]:
        return [f"{time:9.3f} {party:8s} {text}" for time, party, text in self._records]
