"""The self-audit: during training, a party attacks what it sends, as a curious peer could.

The party knows which of its rows are synthetic, so it knows how well each attack does. It compares
the findings with its own limits and keeps them to itself: in its log, in a record in the run
directory, and in its report. The audit does not use the run's own randomness.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController

from florist.common.audit.attack_runner import attack_as_peer, remedy
from florist.common.audit.comparisons import Comparisons
from florist.common.audit.findings import SCOPE_TEXTS, AuditRecord, Figures, excesses
from florist.common.audit.kept_view import save_view
from florist.common.audit.recorder import Recorder, Window
from florist.common.audit.training_windows import (
    EARLY_STEPS,
    TRAINING_WINDOWS,
    windows_ending_at,
)
from florist.common.core.errors import ConfigurationError, StoppedByPolicy
from florist.common.training.row_codec import RowCodec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from florist.common.audit.audit_folder import AuditFolder
    from florist.common.audit.findings import Excess, Scope
    from florist.common.audit.recorder import Sighting
    from florist.common.core.roles import RoleName
    from florist.common.settings.audit import AuditSettings
    from florist.common.training.schedule import Schedule
    from florist.common.training.seen_rows import SeenRows
    from florist.common.training.training_data import TrainingData

log = logging.getLogger("florist.audit")

#: Bootstrap samples per interval. Few, since an audit runs between two training steps.
SAMPLES = 50


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How to audit, and where to write the findings; without a folder they stay in memory."""

    settings: AuditSettings
    folder: AuditFolder | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AuditedRun:
    """The run to audit, as it is when the audit starts."""

    role: RoleName
    data: TrainingData
    schedule: Schedule
    first_step: int
    union_sha256: bytes
    #: Whether the run resumes one that may have been audited already.
    resumed: bool = False


def start_audit(plan: AuditPlan | None, run: AuditedRun) -> SelfAudit | None:
    """Return the audit of a run, or None if the run is not to be audited.

    Deletes the audit of an earlier run, unless this run resumes it.

    Raises:
        ConfigurationError: the folder cannot be written.
        StoppedByPolicy: an audit has already stopped this run, and still would.
    """
    if plan is None:
        return None
    if plan.folder is not None and not run.resumed:
        with _writing(plan.folder.path):
            plan.folder.clear()
    return SelfAudit(plan, run) if plan.settings.enabled else None


class SelfAudit:
    """Records what the peer sees of a run, and regularly attacks it."""

    def __init__(self, plan: AuditPlan, run: AuditedRun) -> None:
        agreement, settings = run.data.agreement, plan.settings
        followed = min(settings.rows, run.schedule.union_size)
        self.record = AuditRecord(run.role, settings, followed)
        self._run = run
        self._settings = settings
        self._folder = plan.folder
        self._own = run.data.train.membership.row_of_rank >= 0
        self._recorder = Recorder(
            run.schedule,
            RowCodec(agreement.wire_type, agreement.wire_width),
            followed,
            Window(settings.every, settings.rows, agreement.known_batch_size),
            run.first_step,
            agreement.wide_outputs,
            agreement.loss_weights,
        )
        self._comparisons = Comparisons.of_run(run.role, run.schedule, settings.every)
        self._threads = ThreadpoolController()
        if plan.folder is not None:
            self._open(plan.folder)

    def _open(self, folder: AuditFolder) -> None:
        """Continue the record of a resumed run, or start a new one."""
        before: list[Figures] = []
        if self._run.resumed and folder.files.exists(folder.record.name):
            before = AuditRecord.load(folder).audits
        if before:
            self._stop_on_excess(before[-1])
        self.record.audits.extend(a for a in before if a.step <= self._run.first_step)
        self.record.save(folder)

    def see(self, seen: SeenRows) -> None:
        """Record what the peer sees."""
        self._recorder.see(seen)

    def after_step(self, done: int) -> None:
        """Audit if an audit is due after `done` steps of the run.

        Raises:
            StoppedByPolicy: the peer can learn more than our limits allow.
        """
        for window in windows_ending_at(done, self._run.schedule.steps):
            self._audit(done, window, self._recorder.early(TRAINING_WINDOWS[window]))
        if done == EARLY_STEPS:
            self._recorder.forget_early()
        if self._settings.every and done % self._settings.every == 0:
            self._audit(done, "batches", self._recorder.recent())
        if done % self._run.schedule.steps_per_epoch == 0:
            sightings = self._recorder.followed()
            if sightings and self._settings.keep_view and self._folder is not None:
                save_view(self._folder, sightings, self._run.union_sha256.hex())
            self._audit(done, "epochs", sightings)
            self._audit(done, "later-batches", self._recorder.followed(EARLY_STEPS))

    def _audit(self, done: int, over: Scope, sightings: Sequence[Sighting]) -> None:
        if not sightings:
            return  # the run was resumed just before
        # The matrices are small: threads would cost more than they save, even more so if the peer
        # runs on the same machine.
        with self._threads.limit(limits=1, user_api="blas"):
            attacks = attack_as_peer(
                self._run.role,
                sightings,
                self._own,
                SAMPLES,
                self._comparisons.confidence(over),
                self._comparisons.stratum_confidence() if over == "epochs" else None,
            )
        figures = Figures.of(done, over, attacks)
        self.record.audits.append(figures)
        if self._folder is not None:
            self.record.save(self._folder)
        self._log(figures)
        self._stop_on_excess(figures)

    def _stop_on_excess(self, figures: Figures) -> None:
        for excess in excesses(figures.findings, self._settings, "stop"):
            raise StoppedByPolicy(self._warning(figures, excess))

    def _log(self, figures: Figures) -> None:
        strongest = figures.strongest
        if strongest is None:
            log.info(
                "self-audit after step %s, %s: too few rows for a result",
                f"{figures.step:,}",
                SCOPE_TEXTS[figures.over],
            )
            return
        excess = next(excesses(figures.findings, self._settings, "warn"), None)
        if excess is not None:
            log.warning("%s", self._warning(figures, excess), extra={"event": "self-audit"})
            return
        log.info(
            "self-audit after step %s, %s: strongest attack %s %s",
            f"{figures.step:,}",
            SCOPE_TEXTS[figures.over],
            strongest.attack,
            strongest.auc,
            extra={"event": "self-audit"},
        )

    def _warning(self, figures: Figures, excess: Excess) -> str:
        attack = excess.finding.attack
        what = "labels" if self._run.role == "active" else "features"
        return (
            f"self-audit after step {figures.step:,}, {SCOPE_TEXTS[figures.over]}: the peer can "
            f"distinguish our real {what} from synthetic ones: {attack}, {excess}; see "
            f"{remedy(self._run.role, attack)}"
        )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}; free disk space or fix the "
            "permissions, and start again"
        ) from None
