"""Losses and metrics in MLflow, in a real store in a file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.settings.agreement import Agreement
from florist.common.settings.training import Model, Optimiser, Training
from florist.common.training.history import EpochFigures, History
from florist.common.training.mlflow_run import EXPERIMENT, MlflowRun, public_parameters
from tests.support.settings import problem, with_value

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")  # of MLflow and what it imports
def test_losses_metrics_and_parameters_are_sent_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow", reason="florist[mlflow] is not installed; `make test-slow` does")
    from mlflow import MlflowClient  # noqa: PLC0415 - optional

    path = tmp_path / "mlflow.db"
    uri = f"sqlite:///{path}"
    training = Agreement.model_validate({"training": {"class_names": ["healthy", "ill"]}}).training
    parameters = public_parameters(agreement=training, model=Model(hidden=[8, 4]))
    run = MlflowRun(uri, "bank", parameters, epochs=2)
    assert path.stat().st_mode & 0o077 == 0
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    history = History(losses=[0.7, 0.6], epochs=[EpochFigures(0, 0.65, auc=0.7)])
    run.update(history)
    run.update(history)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "RUNNING"
    history.losses.extend([0.5] * 2500)  # more than MLflow takes at once
    history.epochs.append(EpochFigures(1, 0.5, auc=0.8, log_loss=0.4))
    run.update(history)
    found = client.get_run(found.info.run_id)
    assert (found.info.status, found.info.run_name) == ("FINISHED", "bank")
    losses = client.get_metric_history(found.info.run_id, "train/loss")
    assert [metric.value for metric in sorted(losses, key=lambda each: each.step)] == history.losses
    aucs = client.get_metric_history(found.info.run_id, "epoch/auc")
    assert [(metric.step, metric.value) for metric in aucs] == [(0, 0.7), (1, 0.8)]
    assert found.data.params["model.hidden"] == "[8, 4]"
    assert found.data.params["agreement.epochs"] == str(training.epochs)
    assert not {"healthy", "ill"} & set(str(found.data.params).replace("'", " ").split())
    client.delete_run(found.info.run_id)
    history.losses.append(0.4)
    for _ in range(2):
        run.update(history)  # refused: training continues, with one warning
    assert caplog.text.count("metrics could not be sent") == 1
    with pytest.raises(ConfigurationError, match="tracking server cannot be used"):
        MlflowRun(f"sqlite:///{tmp_path}/no/such/folder.db", "bank", {}, epochs=1)


def test_without_mlflow_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'florist\[mlflow\]'"):
        MlflowRun("http://127.0.0.1:1", "bank", {}, epochs=1)


def test_parameters_are_numbers_and_choices_of_the_named_sections() -> None:
    training = Agreement.model_validate({"training": {"class_names": ["healthy", "ill"]}}).training
    found = public_parameters(agreement=training, optimiser=Optimiser())
    assert found["agreement.classes"] == 2
    assert not [name for name in found if "class_names" in name or "seed" in name]


def test_addresses_are_checked_and_not_shown() -> None:
    assert Training(mlflow="https://mlflow.example").mlflow == "https://mlflow.example"
    assert "must start with http" in problem(with_value("training.mlflow", "ftp://mlflow"))
    text = problem(with_value("training.mlflow", "http://user:s3cr3t@mlflow.example"))
    assert "training.mlflow: must not contain a user or password" in text
    assert "s3cr3t" not in text
