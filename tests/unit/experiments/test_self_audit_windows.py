"""The self-audit finds a leak in the first batches, which the average of the run hides."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from florist.active_party import training as active_training
from florist.common.audit.findings import verdict
from florist.common.audit.self_audit import AuditPlan
from florist.common.core.errors import StoppedByPolicy
from florist.common.settings.audit import AuditSettings
from florist.common.stages.training_session import RunSetup
from florist.common.synthetic import label_strategies
from florist.experiments import simulation
from tests.support.simulated_windows import run

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.audit.findings import AuditRecord, Scope
    from florist.common.core.roles import RoleName
    from florist.experiments.simulation import Observed


def audited(monkeypatch: pytest.MonkeyPatch, settings: AuditSettings, steps: int) -> Observed:
    """Train with 3% positives in batches of 1,024; both parties audit themselves."""
    setup = partial(RunSetup, audit=AuditPlan(settings))
    monkeypatch.setattr(simulation, "RunSetup", setup)
    return run(0.03, 1024, steps=steps, cut_width=128)


def plant_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model start at p = 0.5, and draw labels from its predictions as they are."""

    def unmatched(
        predictions: Tensor, _own: Tensor, _rates: tuple[float, ...], wanted: Tensor
    ) -> Tensor:
        return predictions[wanted]

    monkeypatch.setattr(active_training, "start_at_base_rate", lambda _model, _data: None)
    monkeypatch.setattr(label_strategies, "with_rates", unmatched)


def records(observed: Observed) -> dict[RoleName, AuditRecord]:
    active, passive = observed.active.audit, observed.passive.audit
    assert active is not None
    assert passive is not None
    return {"active": active, "passive": passive}


def verdicts(record: AuditRecord) -> dict[Scope, str]:
    return {
        figures.over: verdict(figures.findings, record.settings)
        for figures in record.audits
        if figures.findings
    }


def test_a_leak_in_the_first_batch_is_found_only_by_its_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant_leak(monkeypatch)
    found = records(audited(monkeypatch, AuditSettings(), steps=45))
    judged = verdicts(found["active"])
    assert judged["batch-0"] == "warn"
    assert judged["epochs"] == judged["later-batches"] == "fine"
    assert found["active"].verdict == "warn"
    assert found["active"].summary()["worst_window"]["over"] == "batch-0"
    assert set(verdicts(found["passive"]).values()) == {"fine"}


def test_a_leak_in_the_first_batch_stops_the_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_leak(monkeypatch)
    with pytest.raises(StoppedByPolicy, match=r"after step 1, first batch: .* audit\.stop_above"):
        audited(monkeypatch, AuditSettings(stop_above=0.6), steps=45)


def test_a_run_without_a_leak_is_fine_in_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a run that ends within a window."""
    found = records(audited(monkeypatch, AuditSettings(stop_above=0.6), steps=13))
    for record in found.values():
        assert list(verdicts(record)) == [
            "batch-0",
            "batches-0-4",
            "batches-5-9",
            "batches-10-19",
            "epochs",
        ]
        assert set(verdicts(record).values()) == {"fine"}
