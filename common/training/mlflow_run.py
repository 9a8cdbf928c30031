"""Sends losses and metrics to MLflow during training. Aggregates only, as in the history."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.storage.private_files import private_opener

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mlflow.entities import Metric
    from pydantic import BaseModel

    from florist.common.training.history import History

log = logging.getLogger("florist.training")

EXPERIMENT = "florist"

#: Most metrics that MLflow accepts at once.
_BATCH = 1000

#: Set before MLflow is imported, unless the operator has set them. MLflow would report its usage to
#: its makers, and wait for minutes for a server that does not answer, while the peer waits for us.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}

_SQLITE = "sqlite:///"


class MlflowRun:
    """A run in MLflow for this start of the training; a resumed training is another run."""

    def __init__(self, uri: str, party: str, parameters: Mapping[str, object], epochs: int) -> None:
        """Create the run.

        Args:
            uri: the tracking server, or an SQLite file.
            party: the name of the run.
            parameters: as from `public_parameters`.
            epochs: number of epochs after which the run is finished.

        Raises:
            ConfigurationError: MLflow is not installed, or does not accept the run.
        """
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient  # noqa: PLC0415 - optional
            from mlflow.entities import Metric, Param  # noqa: PLC0415
            from mlflow.exceptions import MlflowException  # noqa: PLC0415
        except ImportError:
            raise ConfigurationError(
                "training.mlflow: MLflow is not installed; run `pip install 'florist[mlflow]'`, or "
                "set it to null"
            ) from None
        self._metric = Metric
        self._error = MlflowException
        self._epochs = epochs
        self._sent_steps = self._sent_epochs = 0
        self._warned = False
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        try:
            _make_private(uri)
            self._client = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(EXPERIMENT)
            experiment = (
                self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
            )
            self._run = self._client.create_run(experiment, run_name=party).info.run_id
            texts = [Param(key, str(value)) for key, value in parameters.items()]
            self._client.log_batch(self._run, params=texts)
        except (MlflowException, OSError) as error:
            # The message of MLflow may contain the address with a password.
            raise ConfigurationError(
                f"training.mlflow: the tracking server cannot be used ({type(error).__name__}); "
                "check the address and that it is up, or set it to null"
            ) from None

    def update(self, history: History) -> None:
        """Send what is new in the history; if that fails, warn, and try again the next time."""
        metrics = [*self._new_metrics(history)]
        try:
            for start in range(0, len(metrics), _BATCH):
                self._client.log_batch(self._run, metrics=metrics[start : start + _BATCH])
            self._sent_steps, self._sent_epochs = len(history.losses), len(history.epochs)
            if self._sent_epochs == self._epochs:
                self._client.set_terminated(self._run)
        except (self._error, OSError) as error:
            if not self._warned:
                log.warning(
                    "training.mlflow: metrics could not be sent (%s); training continues",
                    type(error).__name__,
                )
            self._warned = True

    def _new_metrics(self, history: History) -> Iterator[Metric]:
        now = int(time.time() * 1000)
        for step in range(self._sent_steps, len(history.losses)):
            yield self._metric("train/loss", history.losses[step], now, step)
        for epoch in history.epochs[self._sent_epochs :]:
            for name in ("loss", "auc", "ace", "log_loss"):
                if (value := getattr(epoch, name)) is not None:
                    yield self._metric(f"epoch/{name}", value, now, epoch.epoch)


def public_parameters(**sections: BaseModel) -> dict[str, object]:
    """Return the numbers and choices of sections of a configuration, by their dotted names."""
    found: dict[str, object] = {}

    def add(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                add(f"{name}.{key}", each)
        elif isinstance(value, bool | int | float | str) or _is_numbers(value):
            found[name] = value

    for name, section in sections.items():
        add(name, section.model_dump(mode="json"))
    return found


def _is_numbers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) for each in value)


def _make_private(uri: str) -> None:
    """Create an SQLite file readable by its owner only; SQLite would use the umask."""
    if uri.startswith(_SQLITE):
        with open(uri.removeprefix(_SQLITE), "ab", opener=private_opener):
            pass
