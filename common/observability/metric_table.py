"""The table of all metrics: /metrics, the cards of the status page and the documentation use it.

To add a metric, add an entry to `METRICS`, and a field to `Snapshot` if its value is new. With a
`card`, the status page shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from florist.common.observability.snapshot import STAGES

if TYPE_CHECKING:
    from florist.common.observability.requests import RequestFigures
    from florist.common.observability.snapshot import Snapshot
    from florist.common.observability.training_watch import AuditFigures, TrainingFigures

#: How the page shows a value: with thousands separators, as bytes, as a duration in seconds, as a
#: latency in seconds, or as the days that are left.
CardFormat = Literal["count", "bytes", "duration", "latency", "days"]
#: The section of the page that shows a card.
CardSection = Literal["network", "requests"]

#: A single value (None if it is unknown), or values by their labels.
Value = float | None
Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Card:
    """How the status page shows a metric."""

    title: str
    format: CardFormat
    section: CardSection = "network"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, and how it is read."""

    #: As Prometheus has it; it appends `_total` to the names of counters.
    name: str
    help: str
    read: Callable[[Snapshot], Value | Values]
    labels: tuple[str, ...] = ()
    is_counter: bool = False
    card: Card | None = None

    @property
    def sample_name(self) -> str:
        """The name of the metric's samples."""
        return f"{self.name}_total" if self.is_counter else self.name

    def values(self, now: Snapshot) -> Values:
        """Return the values by their labels; a metric without labels has at most one."""
        value = self.read(now)
        if isinstance(value, Mapping):
            return value
        return {} if value is None else {(): value}


def _training(
    read: Callable[[TrainingFigures], float | None],
) -> Callable[[Snapshot], Value | Values]:
    """Read a figure of training; unknown before training has started."""
    return lambda now: None if now.training is None else read(now.training)


def _audit(
    read: Callable[[AuditFigures], Value | Values],
) -> Callable[[Snapshot], Value | Values]:
    """Read a figure of the self-audit; unknown before the first audit."""

    def read_audit(now: Snapshot) -> Value | Values:
        training = now.training
        return None if training is None or training.audit is None else read(training.audit)

    return read_audit


def _requests(
    read: Callable[[RequestFigures], Value | Values],
) -> Callable[[Snapshot], Value | Values]:
    """Read a figure of the requests; unknown unless the party serves."""
    return lambda now: None if now.requests is None else read(now.requests)


def _running_stages(now: Snapshot) -> Values:
    running = {stage.name for stage in now.stages if stage.state == "running"}
    return {(stage,): stage in running for stage in STAGES}


def _limits(audit: AuditFigures) -> Values:
    limits = {("warn",): audit.warn_above, ("stop",): audit.stop_above}
    return {action: limit for action, limit in limits.items() if limit is not None}


METRICS: tuple[Metric, ...] = (
    Metric(
        "florist_info",
        "The party, its peer, its role and its release; always 1.",
        lambda now: {(now.about.party, now.about.peer, now.about.role, now.about.release): 1},
        labels=("party", "peer", "role", "release"),
    ),
    Metric("florist_uptime_seconds", "Seconds since the party started.", lambda now: now.uptime),
    Metric("florist_failed", "1 if the run has failed.", lambda now: now.state == "failed"),
    Metric(
        "florist_ready",
        "1 if connected to the peer and working, or serving; the same as `/readyz`.",
        lambda now: now.is_ready,
    ),
    Metric(
        "florist_stage",
        "1 for the current stage: `align`, `train`, `evaluate` or `serve`.",
        _running_stages,
        labels=("stage",),
    ),
    Metric(
        "florist_rows",
        "Rows processed; in `serve` rows predicted, in `align` exponentiations.",
        lambda now: {(stage.name,): stage.rows for stage in now.stages},
        labels=("stage",),
        is_counter=True,
    ),
    Metric(
        "florist_rows_per_second",
        "Rows processed per second, 10-second average.",
        lambda now: now.rows_per_second,
        card=Card("rows/s", "count"),
    ),
    Metric(
        "florist_step_done",
        "Work done in the current steps, which are named as in the log.",
        lambda now: {(step.title,): step.done for step in now.steps},
        labels=("step",),
    ),
    Metric(
        "florist_step_total",
        "Total work of the current steps.",
        lambda now: {(step.title,): step.total for step in now.steps if step.total},
        labels=("step",),
    ),
    Metric(
        "florist_peer_up",
        "1 if the peer is connected. An active party that serves does not report it: its peer "
        "connects on demand.",
        lambda now: None if now.peer == "unknown" else now.peer == "up",
    ),
    Metric(
        "florist_sent_bytes",
        "Bytes of messages sent to the peer.",
        lambda now: now.sent,
        is_counter=True,
        card=Card("sent", "bytes"),
    ),
    Metric(
        "florist_received_bytes",
        "Bytes of messages received from the peer.",
        lambda now: now.received,
        is_counter=True,
        card=Card("received", "bytes"),
    ),
    Metric(
        "florist_waiting_seconds",
        "Seconds spent waiting for the peer or its messages, including the current wait. In "
        "alignment, other exchanges may be computed at the same time.",
        lambda now: now.waited,
        is_counter=True,
        card=Card("waited for the peer", "duration"),
    ),
    Metric(
        "florist_reconnects",
        "How often a lost peer came back.",
        lambda now: now.reconnects,
        is_counter=True,
        card=Card("reconnects", "count"),
    ),
    Metric(
        "florist_certificate_days_left",
        "Days until the party's certificate on disk expires; negative once it has.",
        lambda now: now.certificate_days,
        card=Card("certificate", "days"),
    ),
    Metric(
        "florist_privacy_budget_left",
        "Fraction of privacy.budget (epsilon or delta, whichever is smaller) that is left for this "
        "peer, according to the ledger.",
        lambda now: now.budget_left,
    ),
    Metric(
        "florist_requests",
        "Requests that were answered while serving: the peer's at the active party, those of its "
        "own applications at the passive party.",
        _requests(lambda found: found.answered),
        is_counter=True,
        card=Card("answered", "count", "requests"),
    ),
    Metric(
        "florist_requests_per_second",
        "Requests answered per second, 10-second average.",
        _requests(lambda found: found.per_second),
        card=Card("per second", "count", "requests"),
    ),
    Metric(
        "florist_request_seconds",
        "Seconds from the arrival of a request to its answer: quantiles of the last 1,024.",
        _requests(
            lambda found: {
                (share,): seconds
                for share, seconds in (("0.5", found.median), ("0.99", found.p99))
                if seconds is not None
            }
        ),
        labels=("quantile",),
        card=Card("latency", "latency", "requests"),
    ),
    Metric(
        "florist_requests_refused",
        "Requests that were refused while serving, by reason.",
        _requests(lambda found: {(reason,): n for reason, n in found.refused.items()}),
        labels=("reason",),
        is_counter=True,
        card=Card("refused", "count", "requests"),
    ),
    Metric("florist_training_step", "Training steps done.", _training(lambda run: run.step)),
    Metric("florist_training_steps", "Training steps in total.", _training(lambda run: run.steps)),
    Metric("florist_training_epoch", "Epochs done.", _training(lambda run: run.epoch)),
    Metric("florist_training_epochs", "Epochs in total.", _training(lambda run: run.epochs)),
    Metric(
        "florist_loss",
        "Mean loss of the last step at the active party, of the last epoch at the passive party.",
        _training(lambda run: run.loss),
    ),
    Metric(
        "florist_auc",
        "AUC on the test table after the last epoch, if there is a test table.",
        _training(lambda run: run.auc),
    ),
    Metric(
        "florist_audit_step",
        "Training steps done at the latest self-audit.",
        _audit(lambda audit: audit.step),
    ),
    Metric(
        "florist_audit_verdict",
        "1 for the worst verdict of the self-audits so far: `fine`, `warn` or `stop`.",
        _audit(
            lambda audit: {
                (verdict,): verdict == audit.verdict for verdict in ("fine", "warn", "stop")
            }
        ),
        labels=("verdict",),
    ),
    Metric(
        "florist_audit_auc",
        "Folded AUC of each attack in the latest self-audit of each scope; 0.5 is chance.",
        _audit(lambda audit: {(each.attack, each.over): each.auc for each in audit.attacks}),
        labels=("attack", "over"),
    ),
    Metric(
        "florist_audit_auc_low",
        "Lower end of the interval of the folded AUC, corrected for the number of comparisons.",
        _audit(lambda audit: {(each.attack, each.over): each.low for each in audit.attacks}),
        labels=("attack", "over"),
    ),
    Metric(
        "florist_audit_auc_high",
        "Upper end of the interval of the folded AUC, corrected for the number of comparisons.",
        _audit(lambda audit: {(each.attack, each.over): each.high for each in audit.attacks}),
        labels=("attack", "over"),
    ),
    Metric(
        "florist_audit_limit",
        "Folded AUC above which this party warns, or stops.",
        _audit(_limits),
        labels=("then",),
    ),
)
