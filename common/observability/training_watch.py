"""The progress of a training run: step, losses, test figures, and findings of its self-audit.

Reads what the run records anyway, so that observing costs a step nothing. Aggregates only, as in
the history and in the audit's record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.audit.findings import verdict
from florist.common.observability.gauges import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from florist.common.audit.findings import AuditRecord, Figures, Scope, Verdict
    from florist.common.training.history import EpochFigures, History
    from florist.common.training.loop import Run
    from florist.common.training.schedule import Schedule


@dataclass(frozen=True, slots=True)
class TestFigures:
    """The mean loss of an epoch and, if there is a test table, the AUC."""

    epoch: int
    step: int
    loss: float
    auc: float | None


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """The success of an attack on what we send: folded AUC (0.5 is chance) with its interval."""

    attack: str
    over: Scope
    auc: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AuditFigures:
    """The latest audit of each scope, and the worst verdict of the run."""

    audits: int
    step: int
    verdict: Verdict
    #: By falling lower end of the interval, which limits apply to.
    attacks: tuple[AttackFigures, ...]
    warn_above: float | None
    stop_above: float | None


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """The progress of a run. `step` and `epoch` count those that are done."""

    step: int
    steps: int
    epoch: int
    epochs: int
    #: Of the last step at the active party, of the last epoch at the passive party.
    loss: float | None
    auc: float | None
    #: Steps and the mean losses up to them, None if not finite; only at the active party.
    losses: tuple[tuple[int, float | None], ...]
    #: The moving average of `losses`, where they are finite.
    smoothed_losses: tuple[tuple[int, float], ...]
    tests: tuple[TestFigures, ...]
    audit: AuditFigures | None


class TrainingWatch:
    """Observes one run. Not safe for concurrent readers."""

    def __init__(self, run: Run, audit: AuditRecord | None = None) -> None:
        """Follow `run` and, if the party audits itself, the record of its audits."""
        self._run = run
        self._losses = Curve()
        self._audit = None if audit is None else _AuditWatch(audit)

    def read(self) -> TrainingFigures:
        """Return the progress so far."""
        schedule, history = self._run.schedule, self._run.history
        self._losses.extend(history.losses[self._losses.count :])
        losses = self._losses.points()
        tests = tuple(_tested(epoch, schedule) for epoch in tuple(history.epochs))
        return TrainingFigures(
            step=steps_done(history.rows, schedule),
            steps=schedule.steps,
            epoch=len(tests),
            epochs=schedule.epochs,
            loss=_last_loss(history),
            auc=tests[-1].auc if tests else None,
            losses=tuple(
                (step, round(loss, 6) if math.isfinite(loss) else None) for step, loss in losses
            ),
            smoothed_losses=smoothed(losses),
            tests=tests,
            audit=None if self._audit is None else self._audit.read(),
        )


#: A smoothed point is the mean of a twelfth of the points.
SMOOTHING = 12


def smoothed(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return the mean of the points around each; fewer at both ends.

    Points that are not finite are left out.
    """
    known = [(step, value) for step, value in points if math.isfinite(value)]
    reach = len(known) // SMOOTHING // 2
    means = []
    for at, (step, _) in enumerate(known):
        around = known[max(at - reach, 0) : at + reach + 1]
        means.append((step, round(sum(value for _, value in around) / len(around), 6)))
    return tuple(means)


def steps_done(rows: int, schedule: Schedule) -> int:
    """Return the steps after which this many rows were used; an epoch has every UID once."""
    epochs, rest = divmod(rows, schedule.union_size)
    return epochs * schedule.steps_per_epoch + -(-rest // schedule.batch_size)


def _tested(figures: EpochFigures, schedule: Schedule) -> TestFigures:
    step = (figures.epoch + 1) * schedule.steps_per_epoch
    return TestFigures(figures.epoch, step, figures.loss, figures.auc)


def _last_loss(history: History) -> float | None:
    if history.losses:
        return history.losses[-1]
    return history.epochs[-1].loss if history.epochs else None


class _AuditWatch:
    """Observes the audits of a run; looks at each of them once."""

    def __init__(self, record: AuditRecord) -> None:
        self._record = record
        self._seen = 0
        self._newest: dict[Scope, Figures] = {}
        self._verdict: Verdict = "fine"

    def read(self) -> AuditFigures | None:
        """Return the latest figures, or None before the first audit with a verdict."""
        settings = self._record.settings
        new = self._record.audits[self._seen :]
        self._seen += len(new)
        for figures in new:
            if figures.findings:
                self._newest[figures.over] = figures
                found = verdict(figures.findings, settings)
                self._verdict = max(self._verdict, found, key=_SEVERITY.index)
        if not self._newest:
            return None
        attacks = [
            AttackFigures(found.attack, over, found.auc.value, found.auc.low, found.auc.high)
            for over, figures in self._newest.items()
            for found in figures.findings
        ]
        return AuditFigures(
            audits=self._seen,
            step=max(figures.step for figures in self._newest.values()),
            verdict=self._verdict,
            attacks=tuple(sorted(attacks, key=lambda attack: (-attack.low, -attack.auc))),
            warn_above=settings.warn_above,
            stop_above=settings.stop_above,
        )


_SEVERITY: tuple[Verdict, ...] = ("fine", "warn", "stop")
