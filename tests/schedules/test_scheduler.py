"""The simulated threads, locks and clock."""

from __future__ import annotations

from random import Random

import pytest

from tests.schedules.scheduler import START, Killed, Scheduler, SimulatedLock, Stuck


def run(scheduler: Scheduler, *programs: object) -> None:
    """Run functions as threads of the simulation until all are over."""

    def start() -> None:
        for number, program in enumerate(programs):
            assert callable(program)
            scheduler.spawn(f"thread {number}", program, f"party {number}")

    scheduler.run_all(scheduler.spawn("main", start, None))


def counted(seed: int) -> tuple[list[int], int]:
    """Return the order in which three threads take a lock, and the trace."""
    scheduler = Scheduler(Random(seed), preemption=0.5)
    lock, order = SimulatedLock(scheduler), []

    def count(number: int) -> None:
        for _ in range(5):
            with lock:
                order.append(number)

    run(scheduler, lambda: count(0), lambda: count(1), lambda: count(2))
    return order, scheduler.trace


def test_the_seed_determines_the_order() -> None:
    assert [counted(seed) for seed in range(10)] == [counted(seed) for seed in range(10)]
    assert len({tuple(counted(seed)[0]) for seed in range(10)}) > 5


def test_a_lock_excludes() -> None:
    for seed in range(20):
        scheduler = Scheduler(Random(seed), preemption=0.5)
        lock = SimulatedLock(scheduler)
        inside: list[int] = []

        def enter(lock: SimulatedLock = lock, inside: list[int] = inside) -> None:
            with lock:
                inside.append(1)
                lock._scheduler.switch()
                assert len(inside) == 1
                inside.pop()

        run(scheduler, enter, enter, enter)
        assert all(task.error is None for task in scheduler.tasks)


def test_an_hour_takes_no_time() -> None:
    scheduler = Scheduler(Random(0))
    run(scheduler, lambda: scheduler.sleep(3600.0), lambda: scheduler.sleep(1.0))
    assert scheduler.now - START == pytest.approx(3600, abs=1)


def test_a_wait_ends_at_its_limit() -> None:
    scheduler = Scheduler(Random(0))
    lock, ends = SimulatedLock(scheduler), []

    def hold() -> None:
        with lock:
            scheduler.sleep(100.0)

    def wait() -> None:
        scheduler.sleep(1.0)
        assert not lock.acquire(timeout=5.0)
        ends.append(scheduler.now - START)

    run(scheduler, hold, wait)
    assert ends == [pytest.approx(6, abs=0.1)]


def test_threads_that_wait_for_each_other_are_reported() -> None:
    scheduler = Scheduler(Random(0))
    first, second = SimulatedLock(scheduler), SimulatedLock(scheduler)

    def take(one: SimulatedLock, other: SimulatedLock) -> None:
        with one:
            scheduler.sleep(1.0)
            with other:
                pass

    with pytest.raises(Stuck, match="all threads wait for ever"):
        run(scheduler, lambda: take(first, second), lambda: take(second, first))
    scheduler.abandon()
    assert all(task.is_over for task in scheduler.tasks)


def test_a_killed_process_ends_before_others_go_on() -> None:
    scheduler = Scheduler(Random(0), preemption=0.5)
    lock, events = SimulatedLock(scheduler), []

    def victim() -> None:
        try:
            scheduler.sleep(1000.0)
        except Killed:
            events.append("killed")
            with lock:  # its clean-up does nothing
                events.append("cleaned up")

    def killer() -> None:
        scheduler.sleep(1.0)
        scheduler.kill("party 0")
        scheduler.switch()
        events.append("later")

    run(scheduler, victim, killer)
    assert events == ["killed", "later"]


def test_a_frozen_process_goes_on_later() -> None:
    scheduler = Scheduler(Random(0))
    times = []

    def sleeper() -> None:
        scheduler.sleep(2.0)
        times.append(scheduler.now - START)

    def freezer() -> None:
        scheduler.sleep(1.0)
        scheduler.freeze("party 0", 50.0)
        assert scheduler.frozen_for() == 50.0
        scheduler.sleep(scheduler.frozen_for() + 0.1)
        assert scheduler.frozen_for() <= 0.0
        times.append(scheduler.now - START)

    run(scheduler, sleeper, freezer)
    assert all(task.error is None for task in scheduler.tasks)
    assert times == [pytest.approx(51, abs=0.1), pytest.approx(51.1, abs=0.1)]
