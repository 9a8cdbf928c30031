from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from florist.common.audit.findings import AuditRecord, Figures, Finding
from florist.common.audit.statistics import IntervalEstimate
from florist.common.core.errors import PeerLost
from florist.common.core.pace import StepPace
from florist.common.observability.log_tail import LINES, WIDTH, LogTail
from florist.common.observability.status import Status
from florist.common.observability.status_json import status_json
from florist.common.observability.training_watch import SMOOTHING, smoothed, steps_done
from florist.common.settings.audit import AuditSettings
from florist.common.training.history import EpochFigures
from florist.common.training.schedule import Schedule
from florist.common.transport.channel import Traffic
from florist.common.transport.in_memory import linked_pair
from tests.support.clocks import FakeClock
from tests.support.observability import ABOUT, make_run

if TYPE_CHECKING:
    from florist.common.observability.snapshot import PartyState, PeerState


@dataclass
class Checked:
    """A status, and what is expected of it."""

    status: Status = field(default_factory=lambda: Status(ABOUT))

    def check(self, state: PartyState, peer: PeerState, *, ready: bool) -> None:
        now = self.status.snapshot()
        assert (now.state, now.peer, now.is_ready) == (state, peer, ready)
        assert (self.status.unready() is None) is ready


def test_a_run_from_start_to_end() -> None:
    checked = Checked()
    status = checked.status
    checked.check("preparing", "idle", ready=False)
    for stage in status.stages(["align", "train"]):
        with status.awaiting_peer():
            checked.check("waiting", "awaited", ready=False)
        with status.connected(linked_pair()[0]):
            checked.check("running", "up", ready=True)
            states = [each.state for each in status.snapshot().stages]
            assert states == (["running", "pending"] if stage == "align" else ["done", "running"])
        status.set_result(stage, f"{stage} has a result")
    checked.check("preparing", "idle", ready=False)
    status.finish()
    checked.check("finished", "idle", ready=False)
    now = status.snapshot()
    assert [stage.fraction for stage in now.stages] == [1, 1]
    assert [stage.result for stage in now.stages] == ["align has a result", "train has a result"]
    assert (status.failure, status.unready()) == (None, "finished")


def test_a_lost_peer_is_reported_at_once_and_its_return_counted() -> None:
    checked = Checked()
    status = checked.status
    next(iter(status.stages(["train"])))
    for lost in range(3):
        link, _ = linked_pair()
        with status.connected(link):
            checked.check("running", "up", ready=True)
            assert status.snapshot().reconnects == lost
            link.fail(PeerLost("gone"))
            checked.check("waiting", "lost", ready=False)
        checked.check("waiting", "lost", ready=False)


def test_a_peer_that_only_runs_preflight_is_not_a_reconnection() -> None:
    status = Status(ABOUT)
    next(iter(status.stages(["train"])))
    for _ in range(2):
        with status.connected(linked_pair()[0]):
            pass
    assert status.snapshot().reconnects == 0


def test_traffic_is_summed_over_links() -> None:
    status = Status(ABOUT)
    for total in (10, 20):
        link, _ = linked_pair()
        with status.connected(link):
            link.traffic.count_sent(10)
            link.traffic.count_received(1)
            now = status.snapshot()
            assert (now.sent, now.received) == (total, total // 10)


def test_a_failure_is_reported() -> None:
    status = Status(ABOUT)
    next(iter(status.stages(["align", "train"])))
    status.fail("data.train: gone", "Bring it back.")
    now = status.snapshot()
    assert (now.state, now.is_ready, now.reason) == ("failed", False, "data.train: gone")
    assert now.advice == "Bring it back."
    assert [stage.state for stage in now.stages] == ["failed", "pending"]
    assert status.may_linger


def test_a_run_that_the_operator_stops_has_not_failed() -> None:
    status = Status(ABOUT)
    next(iter(status.stages(["train"])))
    status.stop("stopped by the operator", "Start again.")
    now = status.snapshot()
    assert (now.state, now.reason, now.advice) == (
        "stopped",
        "stopped by the operator",
        "Start again.",
    )
    assert [stage.state for stage in now.stages] == ["stopped"]
    assert status.failure is None
    assert not status.may_linger


def test_the_clock_stops_at_the_end() -> None:
    clock = FakeClock()
    status = Status(ABOUT, clock=clock)
    clock.advance(30)
    status.finish()
    clock.advance(1000)
    assert status.snapshot().uptime == 30


def test_the_fraction_of_training_includes_the_steps_before_a_resumption() -> None:
    status, run = Status(ABOUT), make_run()
    run.history.rows = 150  # of two epochs of 100
    next(iter(status.stages(["train"])))
    status.train(run)
    with status.step("training") as step:
        step.expect(50)
        assert status.snapshot().stages[0].fraction == 0.75


def test_the_estimate_is_that_of_the_progress_display() -> None:
    """The terminal and the log use the same class, so that they say the same as the page."""
    clock = FakeClock()
    status, shown = Status(ABOUT, clock=clock), StepPace(clock)
    next(iter(status.stages(["train"])))
    with status.connected(linked_pair()[0]), status.step("training") as watched:
        for each in (watched, shown):
            each.expect(1000)
        for amount in (1, 70, 5, 40, 40):
            clock.advance(7)
            watched.advance(amount)
            shown.advance(amount)
        left = status.snapshot().time_left
        assert left is not None
        assert (left.seconds, left.is_at_least) == (shown.seconds_left(), False)


def test_requests_and_their_traffic_are_counted_while_serving() -> None:
    status, traffic = Status(ABOUT), Traffic()
    assert status.snapshot().requests is None
    next(iter(status.stages(["serve"])))
    with status.serving(None, traffic):
        traffic.count_sent(10)
        traffic.count_received(400)
        status.requests.answered(0.25)
        status.requests.refused("malformed")
        now = status.snapshot()
        assert (now.sent, now.received) == (10, 400)
    now = status.snapshot()
    assert (now.sent, now.received) == (10, 400), "the traffic stays when serving ends"
    assert now.requests is not None
    assert (now.requests.answered, now.requests.median) == (1, 0.25)
    assert now.requests.refused == {"malformed": 1}


def test_steps_and_rows_from_several_threads() -> None:
    status = Status(ABOUT)
    next(iter(status.stages(["align"])))

    def work() -> None:
        for _ in range(2000):
            step.advance(3)

    with status.step("step 3") as step:
        step.expect(24_000)
        threads = [Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (seen,) = status.snapshot().steps
        assert (seen.title, seen.done, seen.total) == ("step 3", 24_000, 24_000)
    assert status.snapshot().steps == ()
    assert status.snapshot().stages[0].rows == 24_000


def test_a_service_is_ready_while_its_peer_is_up() -> None:
    checked = Checked()
    status = checked.status
    next(iter(status.stages(["serve"])))
    answers = iter([True])
    with status.serving(
        lambda: next(answers), Traffic()
    ):  # the peer is not asked for every snapshot
        checked.check("serving", "up", ready=True)
        checked.check("serving", "up", ready=True)
    with status.serving(None, Traffic()):
        checked.check("serving", "unknown", ready=True)
        status.count_rows(7)
    assert status.snapshot().stages[0].rows == 7


@pytest.mark.parametrize(("union", "batch"), [(100, 10), (101, 10), (7, 10), (1, 1)])
def test_steps_are_counted_by_rows(union: int, batch: int) -> None:
    schedule = Schedule(bytes(32), union, batch, 3)
    rows = 0
    for step in range(schedule.steps):
        assert steps_done(rows, schedule) == step
        rows += len(schedule.batch(*divmod(step, schedule.steps_per_epoch)))
    assert steps_done(rows, schedule) == schedule.steps


def test_training_is_read_from_the_run() -> None:
    status = Status(ABOUT)
    run = make_run()
    status.train(run)
    run.history.losses += [0.7, 0.5]
    run.history.rows = 20
    training = status.snapshot().training
    assert training is not None
    assert (training.step, training.steps, training.loss, training.auc) == (2, 20, 0.5, None)
    assert training.losses == ((1, 0.7), (2, 0.5))
    run.history.epochs.append(EpochFigures(0, 0.6, 0.71))
    training = status.snapshot().training
    assert training is not None
    assert (training.epoch, training.epochs, training.auc) == (1, 2, 0.71)
    assert training.tests[0].step == 10


def test_a_passive_party_reports_the_loss_of_each_epoch() -> None:
    status = Status(ABOUT)
    run = make_run()
    status.train(run)
    run.history.epochs.append(EpochFigures(0, 0.6))
    training = status.snapshot().training
    assert training is not None
    assert (training.loss, training.losses) == (0.6, ())


def found(attack: str, auc: float) -> Finding:
    return Finding(attack, IntervalEstimate(auc, auc - 0.01, auc + 0.01), None)


def test_the_self_audit_is_read_from_its_record() -> None:
    record = AuditRecord("active", AuditSettings(warn_above=0.6), 100)
    status = Status(ABOUT)
    status.train(make_run(), record)
    training = status.snapshot().training
    assert training is not None
    assert training.audit is None
    record.audits.append(Figures(100, "batches", (found("spectral", 0.7),)))
    record.audits.append(Figures(200, "batches", (found("spectral", 0.52), found("flips", 0.55))))
    record.audits.append(Figures(300, "batches", ()))  # too few rows for a verdict
    for _ in range(2):
        training = status.snapshot().training
        assert training is not None
        assert training.audit is not None
        assert training.audit.verdict == record.verdict == "warn"
        assert [each.attack for each in training.audit.attacks] == ["flips", "spectral"]
        assert (training.audit.step, training.audit.audits) == (200, 3)


@pytest.mark.parametrize("count", [0, 1, 5, 60, 256])
def test_the_smoothed_loss_is_the_mean_around_each_point(count: int) -> None:
    losses = [(step, math.sin(step) + step / 10) for step in range(1, count + 1)]
    found = smoothed(losses)
    assert [step for step, _ in found] == [step for step, _ in losses]
    reach = count // SMOOTHING // 2
    for at, (_, mean) in enumerate(found):
        around = [loss for index, (_, loss) in enumerate(losses) if abs(index - at) <= reach]
        assert mean == pytest.approx(sum(around) / len(around), abs=1e-6)


def test_json_has_null_for_numbers_that_are_not_finite() -> None:
    status = Status(ABOUT, certificate_days=lambda: math.inf)
    run = make_run()
    run.history.losses += [math.nan, 0.5]
    status.train(run)
    facts = json.loads(status_json(status.snapshot()))
    assert facts["certificate_days"] is None
    values = {card["title"]: card["values"] for card in facts["cards"]}
    assert values["certificate"] == [{"label": "", "value": None}]
    assert facts["training"]["smoothed_losses"] == [[2, 0.5]]
    assert facts["training"]["losses"] == [[1, None], [2, 0.5]]


def test_the_last_log_lines_are_kept_and_shortened() -> None:
    tail, log = LogTail(), logging.getLogger("florist.test-tail")
    log.setLevel(logging.DEBUG)
    with tail.on(log):
        log.debug("too much")
        for number in range(LINES + 5):
            log.info("line %d", number)
        log.warning("long %s", "x" * 10_000)
    log.warning("not recorded")
    lines = tail.lines()
    assert len(lines) == LINES
    assert lines[0].text == "line 6"
    assert (lines[-1].level, len(lines[-1].text)) == ("warning", WIDTH + 1)
