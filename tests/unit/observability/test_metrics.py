from __future__ import annotations

import prometheus_client

from florist.common.observability.metric_table import METRICS
from florist.common.observability.metrics import Metrics
from florist.common.observability.status import Status
from florist.common.transport.channel import Traffic
from tests.support.observability import ABOUT, Samples, busy_status, parsed


def scraped(status: Status) -> Samples:
    return parsed(Metrics(status).write()[0].decode())


def test_every_metric_has_a_value() -> None:
    with busy_status() as status:
        found = scraped(status)
    plain = {name: value for (name, labels), value in found.items() if not labels}
    expected = {
        "florist_failed": 0,
        "florist_ready": 1,
        "florist_peer_up": 1,
        "florist_reconnects_total": 0,
        "florist_sent_bytes_total": 1000,
        "florist_received_bytes_total": 2000,
        "florist_waiting_seconds_total": 0,
        "florist_certificate_days_left": 12.5,
        "florist_privacy_budget_left": 0.75,
        "florist_training_step": 11,
        "florist_training_steps": 20,
        "florist_training_epoch": 1,
        "florist_training_epochs": 2,
        "florist_loss": 0.7,
        "florist_auc": 0.72,
        "florist_audit_step": 10,
        "florist_requests_total": 1,
    }
    assert {name: plain[name] for name in expected} == expected
    attack = (("attack", "spectral"), ("over", "epochs"))
    labelled = {
        ("florist_stage", (("stage", "train"),)): 1,
        ("florist_stage", (("stage", "evaluate"),)): 0,
        ("florist_rows_total", (("stage", "train"),)): 110,
        ("florist_step_done", (("step", "training"),)): 110,
        ("florist_step_total", (("step", "training"),)): 200,
        ("florist_audit_auc", attack): 0.55,
        ("florist_audit_auc_low", attack): 0.53,
        ("florist_audit_auc_high", attack): 0.57,
        ("florist_audit_verdict", (("verdict", "fine"),)): 1,
        ("florist_audit_limit", (("then", "stop"),)): 0.9,
        ("florist_request_seconds", (("quantile", "0.5"),)): 0.012,
        ("florist_request_seconds", (("quantile", "0.99"),)): 0.012,
        ("florist_requests_refused_total", (("reason", "malformed"),)): 1,
    }
    assert {key: found[key] for key in labelled} == labelled


def test_every_metric_of_the_table_is_reported_under_its_name() -> None:
    with busy_status() as status:
        names = {name for name, _ in scraped(status) if name.startswith("florist_")}
    assert names == {metric.sample_name for metric in METRICS}


def test_unknown_values_are_left_out() -> None:
    names = {name for name, _ in scraped(Status(ABOUT))}
    assert "florist_peer_up" in names
    assert not names & {"florist_loss", "florist_auc", "florist_certificate_days_left"}
    status = Status(ABOUT)
    with status.serving(None, Traffic()):
        assert "florist_peer_up" not in {name for name, _ in scraped(status)}


def test_labels_may_contain_any_text() -> None:
    status = Status(ABOUT)
    title = 'a "quoted" \\ title\nwith a break'
    with status.step(title) as step:
        step.expect(1)
        assert scraped(status)["florist_step_total", (("step", title),)] == 1


def test_the_format_follows_the_accept_header() -> None:
    metrics = Metrics(Status(ABOUT))
    assert metrics.write()[1].startswith("text/plain")
    body, kind = metrics.write("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_the_global_registry_is_not_included() -> None:
    stray = prometheus_client.Gauge("stray_figure_of_another_library", "Not ours.")
    try:
        assert b"stray" not in Metrics(Status(ABOUT)).write()[0]
    finally:
        prometheus_client.REGISTRY.unregister(stray)
