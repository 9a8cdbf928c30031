"""Runs threads one at a time in an order that a seed determines, on a virtual clock.

Every simulated thread is a thread of the operating system that runs only while it holds the baton.
It passes the baton on when it waits, and sometimes when it could go on. Time passes only when all
threads wait: then the clock jumps to the first deadline.
"""

from __future__ import annotations

import _thread
import heapq
import sys
import traceback
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from threading import Thread

#: Switches after which a schedule counts as endless.
MOST_SWITCHES = 400_000

#: The time at which every schedule starts.
START = 1000.0

#: Virtual seconds that pass with each switch, so that no two events have the same time.
_TICK = 1e-5


class Killed(BaseException):
    """Ends a thread whose process was killed; code of the parties must not handle it."""


class Stuck(Exception):  # noqa: N818 - named after the event
    """No thread can run and nobody waits for a moment in time, or the schedule has no end."""


@dataclass(eq=False)
class Task:
    """One simulated thread."""

    name: str
    #: The party whose process this thread belongs to; None for the simulation's own.
    party: str | None
    run: Callable[[], None] = field(repr=False)
    #: Whether its process was killed: it ends at the next switch.
    is_killed: bool = False
    is_over: bool = False
    #: Until when it waits; None without a limit.
    deadline: float | None = None
    #: Increased with each wait, so that deadlines of earlier waits are ignored.
    waits: int = 0
    waiting_for: str = ""
    #: What ended it, other than its return.
    error: BaseException | None = None
    baton: Any = field(default_factory=_thread.allocate_lock, repr=False)
    ident: int = 0
    #: As `threading` shows it, if it was started through that.
    thread: Thread | None = field(default=None, repr=False)
    #: Tasks that wait for its end.
    joining: list[Task] = field(default_factory=list, repr=False)


class Scheduler:
    """The threads of one schedule."""

    def __init__(self, random: Random, *, preemption: float = 0.05) -> None:
        """`preemption` is the probability of a switch where a thread could go on."""
        self._random = random
        self._preemption = preemption
        self._runnable: list[Task] = []
        self._timers: list[tuple[float, int, int, Task]] = []
        self._number = 0
        self._dying: list[Task] = []
        self._frozen: dict[str, float] = {}
        self._over = _thread.allocate_lock()
        self._over.acquire()
        self._failure: BaseException | None = None
        self.now = START
        self.current: Task | None = None
        self.tasks: list[Task] = []
        self.switches = 0
        #: A digest of what ran when: equal for equal schedules.
        self.trace = 0

    # -- for the simulation ------------------------------------------------------------------------

    def run_all(self, first: Task) -> None:
        """Run `first` and all that it starts, until none of them can run again.

        Raises:
            Stuck: some threads wait for ever; the message says where.
        """
        self._pass_on(first)
        self._over.acquire()
        self.current = None
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """End all threads that are left, after a failure."""
        left = [task for task in self.tasks if not task.is_over]
        if not left:
            return
        self._failure = None
        for task in left:
            task.is_killed = True
            self._wake(task)
        self._dying = list(left)
        self._runnable.remove(left[0])
        self.current = left[0]
        left[0].baton.release()
        self._over.acquire()
        self.current = None

    def spawn(self, name: str, run: Callable[[], None], party: str | None) -> Task:
        """Start a thread; it runs when it is chosen."""
        if self.current is not None and self.current.is_killed:
            raise Killed
        task = Task(name, party, run)
        task.baton.acquire()
        self.tasks.append(task)
        _thread.start_new_thread(self._bootstrap, (task,))
        self._runnable.append(task)
        return task

    def kill(self, party: str) -> None:
        """Kill a process: its threads end before any other thread runs again."""
        for task in self.of(party):
            task.is_killed = True
            if task is not self.current:
                self._wake(task)
                self._dying.append(task)

    def freeze(self, party: str, seconds: float) -> None:
        """Stop the threads of a process for a while."""
        self._frozen[party] = self.now + seconds

    def frozen_for(self) -> float:
        """Return the seconds until no process is stopped any more."""
        return max((until - self.now for until in self._frozen.values()), default=0.0)

    def of(self, party: str) -> list[Task]:
        """Return the threads of a process that are not over."""
        return [task for task in self.tasks if task.party == party and not task.is_over]

    def note(self, event: str) -> None:
        """Add an event to the trace."""
        name = self.current.name if self.current else ""
        self.trace = zlib.crc32(f"{name} {event} {self.now:.6f}".encode(), self.trace)

    # -- for the simulated primitives --------------------------------------------------------------

    def pause(self) -> None:
        """Let another thread run first, perhaps."""
        me = self.current
        if me is None:
            return
        if me.is_killed:
            raise Killed
        if self._random.random() < self._preemption:
            self.switch()

    def switch(self) -> None:
        """Let any thread run next."""
        me = self.current
        assert me is not None
        self._runnable.append(me)
        self._give_up(me)

    def sleep(self, seconds: float) -> None:
        """Wait for this time."""
        self.wait(seconds, "time to pass")

    def wait(self, seconds: float | None, what: str) -> None:
        """Wait until `wake` or for this time; None waits without a limit."""
        me = self.current
        assert me is not None
        if me.is_killed:
            raise Killed
        me.waiting_for = what
        if seconds is not None:
            me.deadline = self.now + max(seconds, 0.0)
            self._number += 1
            heapq.heappush(self._timers, (me.deadline, self._number, me.waits, me))
        self._give_up(me)

    def wake(self, task: Task) -> None:
        """End the wait of a thread."""
        if not task.is_over and task.waiting_for:
            self._wake(task)

    def join(self, task: Task, seconds: float | None = None) -> bool:
        """Wait for the end of a thread; return whether it has ended."""
        me = self.current
        assert me is not None
        deadline = None if seconds is None else self.now + seconds
        while not task.is_over:
            left = None if deadline is None else deadline - self.now
            if left is not None and left <= 0:
                return False
            task.joining.append(me)
            self.wait(left, f"the end of {task.name}")
        return True

    # -- the baton ---------------------------------------------------------------------------------

    def _bootstrap(self, task: Task) -> None:
        task.baton.acquire()
        task.ident = _thread.get_ident()
        try:
            if not task.is_killed:
                task.run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the simulation
            task.error = error
        task.is_over = True
        if task in self._dying:
            self._dying.remove(task)
        for other in task.joining:
            self.wake(other)
        task.joining.clear()
        following = self._next()
        if following is not None:
            self._pass_on(following)

    def _give_up(self, me: Task) -> None:
        """Pass the baton on and wait until it is back."""
        following = self._next()
        if following is not me:
            if following is not None:
                self._pass_on(following)
            me.baton.acquire()
        if me.is_killed:
            raise Killed

    def _pass_on(self, task: Task) -> None:
        self.current = task
        if task in self._runnable:
            self._runnable.remove(task)
        task.baton.release()

    def _next(self) -> Task | None:
        """Choose who runs next; None if the schedule is over."""
        self.switches += 1
        self.now += _TICK
        if self.switches > MOST_SWITCHES and not self._dying:
            self._end(Stuck(f"no end after {MOST_SWITCHES} switches\n{self.report()}"))
            return None
        if self._dying:
            task = self._dying[0]
            if task in self._runnable:
                self._runnable.remove(task)
            self.current = task
            return task
        ready = self._ready()
        while not ready:
            if not self._advance():
                waiting = [task for task in self.tasks if not task.is_over]
                stuck = Stuck(f"all threads wait for ever\n{self.report()}") if waiting else None
                self._end(stuck)
                return None
            ready = self._ready()
        task = ready[int(self._random.random() * len(ready))] if len(ready) > 1 else ready[0]
        self._runnable.remove(task)
        self.current = task
        self.trace = zlib.crc32(task.name.encode(), self.trace)
        return task

    def _ready(self) -> list[Task]:
        if not self._frozen:
            return self._runnable
        for party, until in list(self._frozen.items()):
            if until <= self.now:
                del self._frozen[party]
        return [task for task in self._runnable if task.party not in self._frozen]

    def _advance(self) -> bool:
        """Move the clock to the next deadline; False if there is none."""
        thaw = min(self._frozen.values(), default=None)
        while self._timers:
            deadline, _, wait, task = self._timers[0]
            if task.is_over or wait != task.waits:
                heapq.heappop(self._timers)
                continue
            if thaw is not None and thaw < deadline:
                break
            heapq.heappop(self._timers)
            self.now = max(self.now, deadline)
            self._wake(task)
            return True
        if thaw is None:
            return False
        self.now = max(self.now, thaw)
        return True

    def _wake(self, task: Task) -> None:
        task.waits += 1
        task.deadline = None
        task.waiting_for = ""
        if task not in self._runnable:
            self._runnable.append(task)

    def _end(self, failure: BaseException | None) -> None:
        self._failure = failure
        self.current = None
        self._over.release()

    def report(self) -> str:
        """Return where each thread is."""
        frames = sys._current_frames()
        lines = []
        for task in self.tasks:
            if task.is_over:
                continue
            lines.append(f"--- {task.party or 'simulation'}: {task.name}, {task.waiting_for}")
            if task.ident in frames:
                stack = traceback.extract_stack(frames[task.ident])
                lines += [
                    f"    {frame.filename}:{frame.lineno} {frame.name}"
                    for frame in stack
                    if "tests/schedules/" not in frame.filename
                    and "/lib/python" not in frame.filename
                ][-8:]
        return "\n".join(lines)


class SimulatedLock:
    """A lock as `threading.Lock` returns it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_locked = False
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        scheduler = self._scheduler
        scheduler.pause()
        if self._is_locked:
            if not blocking:
                return False
            if scheduler.current is None:
                raise Stuck("the simulation itself waits for a lock")
            if not self._wait(timeout):
                return False
        self._is_locked = True
        return True

    def _wait(self, timeout: float) -> bool:
        scheduler = self._scheduler
        deadline = None if timeout < 0 else scheduler.now + timeout
        me = scheduler.current
        assert me is not None
        while self._is_locked:
            left = None if deadline is None else deadline - scheduler.now
            if left is not None and left <= 0:
                return False
            self._waiting.append(me)
            try:
                scheduler.wait(left, "a lock")
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)
        return True

    def release(self) -> None:
        current = self._scheduler.current
        if not self._is_locked:
            if current is None or current.is_killed:
                return
            raise RuntimeError("release unlocked lock")
        self._is_locked = False
        for task in self._waiting:
            self._scheduler.wake(task)
        self._waiting.clear()

    def locked(self) -> bool:
        return self._is_locked

    def _at_fork_reinit(self) -> None:
        """`threading` calls this for all locks of threads that it has seen."""

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedRLock:
    """A lock as `threading.RLock` returns it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = SimulatedLock(scheduler)
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        me = self._scheduler.current
        if self._count and self._owner is me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        me = self._scheduler.current
        if not self._count or self._owner is not me:
            if me is None or me.is_killed:
                return
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # `threading.Condition` uses these three.

    def _is_owned(self) -> bool:
        me = self._scheduler.current
        return bool(self._count) and (self._owner is me or me is None or me.is_killed)

    def _release_save(self) -> tuple[int, Task | None]:
        state = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return state

    def _acquire_restore(self, state: tuple[int, Task | None]) -> None:
        self._lock.acquire()
        self._count, self._owner = state
