"""A status with values for every metric, and requests to a status server."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from florist.common.audit.findings import AuditRecord, Figures, Finding
from florist.common.audit.statistics import IntervalEstimate
from florist.common.observability.snapshot import About
from florist.common.observability.status import Status
from florist.common.settings.audit import AuditSettings
from florist.common.synthetic.secret_draws import SecretDraws
from florist.common.training.history import EpochFigures, History
from florist.common.training.loop import Run
from florist.common.training.run_checkpoints import RunCheckpoints
from florist.common.training.schedule import Schedule
from florist.common.training.training_journal import TrainingJournal
from florist.common.transport.channel import Traffic
from florist.common.transport.in_memory import linked_pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ABOUT = About("bank", "telco", "active", "1.2.3")


def make_run() -> Run:
    """Make a run of two epochs of ten steps, none of them done."""
    return Run(
        schedule=Schedule(bytes(32), 100, 10, 2),
        draws=SecretDraws(bytes(32)),
        history=History(),
        store=RunCheckpoints(Path("never-written"), 1),
        checkpoint_every=0,
        identity={},
        on_checkpoint=lambda _: None,
        after_step=lambda _: None,
        journal=TrainingJournal(None),
    )


@contextmanager
def busy_status() -> Iterator[Status]:
    """Yield a status in which every metric has a value."""
    record = AuditRecord("active", AuditSettings(stop_above=0.9), 100)
    record.audits.append(
        Figures(10, "epochs", (Finding("spectral", IntervalEstimate(0.55, 0.53, 0.57), None),))
    )
    run = make_run()
    run.history.rows = 110
    run.history.losses += [0.7] * 11
    run.history.epochs.append(EpochFigures(0, 0.65, 0.72))
    status = Status(ABOUT, certificate_days=lambda: 12.5, budget_left=lambda: 0.75)
    with status.serving(None, Traffic()):
        status.requests.answered(0.012)
        status.requests.refused("malformed")
    next(iter(status.stages(["train", "evaluate"])))
    status.train(run, record)
    link, _ = linked_pair()
    link.traffic.count_sent(1000)
    link.traffic.count_received(2000)
    with status.connected(link), status.step("training") as step:
        step.expect(200)
        step.advance(110)
        yield status


class Reply(NamedTuple):
    """The reply of a status server."""

    code: int
    headers: Mapping[str, str]
    text: str


def get(
    address: str, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Reply:
    """Send a request to a status server."""
    connection = HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


def get_status(address: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(get(address, "/status.json").text)
    return facts


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(exposition: str) -> Samples:
    """Return every sample by its name and labels, as Prometheus reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }
