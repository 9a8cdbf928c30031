"""The status as Prometheus scrapes it, from a registry of its own: nothing else gets in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from florist.common.observability.status import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from florist.common.observability.status import Snapshot, Status
    from florist.common.observability.training_watch import AuditFigures, TrainingFigures


class Metrics:
    """Writes the status down when asked."""

    def __init__(self, status: Status) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StatusCollector(status))
        ProcessCollector(registry=self._registry)

    def write(self, accept: str = "") -> tuple[bytes, str]:
        """All of it and its content type, in the form that the request's `Accept` asks for."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind


class _StatusCollector(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the run."""
        return []

    def collect(self) -> Iterator[Metric]:
        snapshot = self._status.snapshot()
        yield from _run(snapshot)
        yield from _peer(snapshot)
        if snapshot.training is not None:
            yield from _training(snapshot.training)
            if snapshot.training.audit is not None:
                yield from _audit(snapshot.training.audit)


def _run(now: Snapshot) -> Iterator[Metric]:
    about = now.about
    yield _labelled(
        "florist_info",
        "Who this is; always 1.",
        ("party", "peer", "role", "release"),
        {(about.party, about.peer, about.role, about.release): 1},
    )
    yield GaugeMetricFamily(
        "florist_uptime_seconds", "Seconds since this party started.", value=now.uptime
    )
    yield GaugeMetricFamily(
        "florist_failed", "1 if the run has failed.", value=now.state == "failed"
    )
    yield GaugeMetricFamily(
        "florist_ready", "1 if connected to the peer and at work, or serving.", value=now.is_ready
    )
    running = {stage.name for stage in now.stages if stage.state == "running"}
    yield _labelled(
        "florist_stage",
        "1 for the stage under way.",
        ("stage",),
        {(stage,): stage in running for stage in STAGES},
    )
    rows = CounterMetricFamily(
        "florist_rows", "Rows worked on; exponentiations while sets are aligned.", labels=["stage"]
    )
    for stage in now.stages:
        rows.add_metric([stage.name], stage.rows)
    yield rows
    yield GaugeMetricFamily(
        "florist_rows_per_second",
        "The same per second, over the last ten.",
        value=now.rows_per_second,
    )
    yield _labelled(
        "florist_step_done",
        "What is done of the steps under way.",
        ("step",),
        {(step.title,): step.done for step in now.steps},
    )
    yield _labelled(
        "florist_step_total",
        "What there is to do in the steps under way.",
        ("step",),
        {(step.title,): step.total for step in now.steps if step.total},
    )


def _peer(now: Snapshot) -> Iterator[Metric]:
    if now.peer != "unknown":
        yield GaugeMetricFamily(
            "florist_peer_up", "1 if the peer is connected.", value=now.peer == "up"
        )
    yield CounterMetricFamily(
        "florist_reconnects", "Times that a lost peer came back.", value=now.reconnects
    )
    yield CounterMetricFamily(
        "florist_sent_bytes", "Bytes of messages sent to the peer.", value=now.sent
    )
    yield CounterMetricFamily(
        "florist_received_bytes", "Bytes of messages received from the peer.", value=now.received
    )
    yield CounterMetricFamily(
        "florist_waiting_seconds",
        "Seconds in which we waited for the peer, or for a message of it.",
        value=now.waited,
    )
    if now.certificate_days is not None:
        yield GaugeMetricFamily(
            "florist_certificate_days_left",
            "Days until our certificate ends; below 0 it has.",
            value=now.certificate_days,
        )


def _training(training: TrainingFigures) -> Iterator[Metric]:
    figures = {
        "florist_training_step": ("Steps of training that are done.", training.step),
        "florist_training_steps": ("Steps of training in all.", training.steps),
        "florist_training_epoch": ("Epochs that are done.", training.epoch),
        "florist_training_epochs": ("Epochs in all.", training.epochs),
        "florist_loss": ("Mean loss of the last step, or epoch.", training.loss),
        "florist_auc": ("AUC on the test table after the last epoch.", training.auc),
    }
    for name, (meaning, value) in figures.items():
        if value is not None:
            yield GaugeMetricFamily(name, meaning, value=value)


def _audit(audit: AuditFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "florist_audit_step", "Steps that were done at the last self-audit.", value=audit.step
    )
    yield _labelled(
        "florist_audit_verdict",
        "1 for the worst that our limits made of the self-audits so far.",
        ("verdict",),
        {(verdict,): verdict == audit.verdict for verdict in ("fine", "warn", "stop")},
    )
    for name, meaning, part in (
        ("florist_audit_auc", "Folded AUC of an attack on what we send; 0.5 is chance.", "auc"),
        ("florist_audit_auc_low", "The lower end of its interval.", "low"),
        ("florist_audit_auc_high", "The upper end of its interval.", "high"),
    ):
        values: dict[tuple[str, ...], float] = {
            (each.attack, each.over): getattr(each, part) for each in audit.attacks
        }
        yield _labelled(name, meaning, ("attack", "over"), values)
    limits = {("warn",): audit.warn_above, ("stop",): audit.stop_above}
    yield _labelled(
        "florist_audit_limit",
        "Folded AUC above which we are warned, or stop.",
        ("then",),
        {then: limit for then, limit in limits.items() if limit is not None},
    )


def _labelled(
    name: str,
    meaning: str,
    labels: tuple[str, ...],
    values: dict[tuple[str, ...], float],
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for where, value in values.items():
        family.add_metric(where, value)
    return family
