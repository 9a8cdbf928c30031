"""The self-audit: while it trains, a party attacks what it sends, as its curious peer could.

It knows which of its rows are synthetic, so it knows how well an attack does. What it finds is
judged by limits of its own, and stays with it: log lines, a record beside the run, the report. The
run's own randomness is not touched.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController

from florist.common.audit.attack_runner import attack_as_peer
from florist.common.audit.audit_sample import followed_uids
from florist.common.audit.findings import AuditRecord, Figures, Finding, excesses, shown
from florist.common.audit.kept_view import save_view
from florist.common.audit.recorder import Recorder, Window
from florist.common.core.errors import ConfigurationError, StoppedByPolicy
from florist.common.training.blocks import Wire
from florist.common.transport.observed import ObservedChannel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from florist.common.audit.audit_folder import AuditFolder
    from florist.common.audit.findings import Excess, Scope
    from florist.common.audit.recorder import Sighting
    from florist.common.core.roles import RoleName
    from florist.common.settings.audit import AuditSettings
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.schedule import Schedule
    from florist.common.training.training_data import TrainingData
    from florist.common.transport.channel import Channel

log = logging.getLogger("florist.audit")

#: Bootstrap samples of an interval: a rough one, between two steps.
SAMPLES = 50

_LABELS = "agreement.training.labels (strategy label-random-pred tells least)"
_STICKY = "agreement.training.sticky (true tells least)"
_NOISE = "agreement.training.embedding_noise (more tells less)"
#: Where to look, by our role and the attack; any other: fewer epochs.
_REMEDIES = {
    ("active", "spectral"): _LABELS,
    ("active", "gradient-norm"): _LABELS,
    ("active", "gradient-direction"): _LABELS,
    ("active", "label-likelihood"): _LABELS,
    ("active", "flips"): _STICKY,
    ("passive", "spectral"): "agreement.training.features (strategy fea-sampling tells least)",
    ("passive", "embedding-collision"): _NOISE,
    ("passive", "embedding-twin"): _NOISE,
    ("passive", "embedding-donor"): _NOISE,
    ("passive", "embedding-drift"): _STICKY,
}
_ANY_REMEDY = "agreement.training.epochs (fewer tell less)"


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How to audit, and where to keep what is found; None keeps it in memory only."""

    settings: AuditSettings
    folder: AuditFolder | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Beginning:
    """Where a run stands when its audit begins."""

    role: RoleName
    data: TrainingData
    schedule: Schedule
    draws: SecretDraws
    first_step: int
    union_sha256: bytes
    #: Whether it goes on with a run that was audited before.
    resumed: bool = False


def begin_audit(plan: AuditPlan | None, run: Beginning) -> SelfAudit | None:
    """The audit of a run, if there is to be one; that of a run before is forgotten.

    Raises:
        ConfigurationError: the folder cannot be written.
        StoppedByPolicy: an audit of this run ended it, and the limits are as they were.
    """
    if plan is None:
        return None
    if plan.folder is not None and not run.resumed:
        with _writing(plan.folder.path):
            plan.folder.clear()
    return SelfAudit(plan, run) if plan.settings.enabled else None


class SelfAudit:
    """Watches a run's channel, and attacks what it saw after some of the steps."""

    def __init__(self, plan: AuditPlan, run: Beginning) -> None:
        agreement, settings = run.data.agreement, plan.settings
        followed = followed_uids(run.role, run.data, run.draws, settings.rows)
        self.record = AuditRecord(run.role, settings, int(followed.sum()))
        self._run = run
        self._settings = settings
        self._folder = plan.folder
        self._own = run.data.train.membership.row_of_rank >= 0
        self._recorder = Recorder(
            run.schedule,
            Wire(agreement.wire_type, agreement.cut_width),
            followed,
            Window(settings.every, settings.rows, agreement.batch_size),
            run.first_step,
        )
        self._threads = ThreadpoolController()
        if plan.folder is not None:
            self._open(plan.folder)

    def _open(self, folder: AuditFolder) -> None:
        """Go on with the record that is there: the run was resumed."""
        before: list[Figures] = []
        with suppress(ConfigurationError):
            before = AuditRecord.load(folder.record).audits
        if self._run.resumed and before:
            self._refuse_excess(before[-1])
        self.record.audits.extend(a for a in before if a.step <= self._run.first_step)
        with _writing(folder.path):
            folder.path.mkdir(parents=True, exist_ok=True)
            self.record.begin(folder.record)

    def watch(self, channel: Channel) -> Channel:
        """The same channel, seen."""
        return ObservedChannel(channel, self._recorder.see)

    def after_step(self, done: int) -> None:
        """Audit, if it is time to, after `done` steps of the run.

        Raises:
            StoppedByPolicy: the peer can tell more than our limits allow.
        """
        if self._settings.every and done % self._settings.every == 0:
            self._audit(done, "batches", self._recorder.recent())
        if done % self._run.schedule.steps_per_epoch == 0:
            sightings = self._recorder.followed()
            if sightings and self._settings.keep_view and self._folder is not None:
                with _writing(self._folder.view):
                    save_view(self._folder.view, sightings, self._run.union_sha256.hex())
            self._audit(done, "epochs", sightings)

    def _audit(self, done: int, over: Scope, sightings: Sequence[Sighting]) -> None:
        if not sightings:
            return  # resumed just before
        # Small matrices: threads would cost more than they save, above all if the peer is here too.
        with self._threads.limit(limits=1, user_api="blas"):
            results = attack_as_peer(self._run.role, sightings, self._own, SAMPLES)
        findings = tuple(found for found in map(Finding.of, results) if found)
        figures = Figures(done, over, findings)
        self.record.audits.append(figures)
        if self._folder is not None:
            with _writing(self._folder.record):
                self.record.append(figures, self._folder.record)
        self._tell(figures)
        self._refuse_excess(figures)

    def _refuse_excess(self, figures: Figures) -> None:
        for excess in excesses(figures.findings, self._settings, "stop"):
            raise StoppedByPolicy(self._sentence(figures, excess))

    def _tell(self, figures: Figures) -> None:
        strongest = figures.strongest
        if strongest is None:
            log.info("self-audit after step %s: too few rows to judge by", f"{figures.step:,}")
            return
        excess = next(excesses(figures.findings, self._settings, "warn"), None)
        if excess is not None:
            log.warning("%s", self._sentence(figures, excess), extra={"event": "self-audit"})
            return
        log.info(
            "self-audit after step %s: strongest attack %s %s",
            f"{figures.step:,}",
            strongest.attack,
            shown(strongest.auc),
            extra={"event": "self-audit"},
        )

    def _sentence(self, figures: Figures, excess: Excess) -> str:
        attack = excess.finding.attack
        what = "labels" if self._run.role == "active" else "features"
        return (
            f"self-audit after step {figures.step:,}: what we send tells our real {what} from the "
            f"synthetic ones: {attack}, {excess}; look at "
            f"{_REMEDIES.get((self._run.role, attack), _ANY_REMEDY)}"
        )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}; make room or mend the "
            "permissions, and start again"
        ) from None
