"""Results of trials: one file per trial, written atomically, and one table of all results."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet
from pydantic import ValidationError

from florist.common.core.errors import ConfigurationError
from florist.experiments.trial import Measurement, SkippedAttack, Trial, TrialResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: One row per measured number: the trial, the metric, where it was measured, and the value.
SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("alpha", pa.float64()),
        ("beta", pa.float64()),
        ("seed", pa.int64()),
        ("epochs", pa.int64()),
        ("batch_size", pa.int64()),
        ("learning_rate", pa.float64()),
        ("lacked_by_both", pa.string()),
        ("active_dummies", pa.int64()),
        ("passive_dummies", pa.int64()),
        ("min_count", pa.int64()),
        ("scaling", pa.string()),
        ("bins", pa.int64()),
        ("hidden", pa.list_(pa.int64())),
        ("agreement", pa.string()),
        ("metric", pa.string()),
        ("part", pa.string()),
        ("epoch", pa.int64()),
        ("step", pa.int64()),
        ("side", pa.string()),
        ("attack", pa.string()),
        ("stratum", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


class ResultStore:
    """A folder of finished trials, by their digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, digest: str, result: TrialResult) -> None:
        """Write a result atomically.

        Raises:
            ConfigurationError: the folder cannot be written.
        """
        facts = {
            "trial": result.trial.model_dump(mode="json"),
            "figures": [asdict(figure) for figure in result.figures],
            "losses": result.losses,
            "sizes": result.sizes,
            "seconds": result.seconds,
            "skipped": [asdict(attack) for attack in result.skipped],
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(facts, file, indent=1)
            Path(name).replace(self._path(digest))
        except OSError as error:
            raise ConfigurationError(
                f"{self._folder} cannot be written: {error.strerror or error}; choose another "
                "--output"
            ) from None

    def load(self, digest: str) -> TrialResult | None:
        """Read a result; return None if it is missing or damaged, so that the trial runs again."""
        try:
            facts = json.loads(self._path(digest).read_text(encoding="utf-8"))
            return TrialResult(
                trial=Trial.model_validate(facts["trial"]),
                figures=tuple(Measurement(**figure) for figure in facts["figures"]),
                losses=tuple(facts["losses"]),
                sizes=facts["sizes"],
                seconds=facts["seconds"],
                skipped=tuple(SkippedAttack(**attack) for attack in facts["skipped"]),
            )
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def tidy(results: Iterable[TrialResult]) -> pa.Table:
    """Return all numbers of all trials, one per row."""
    rows = [row for result in results for row in _rows(result)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def write_tidy(results: Iterable[TrialResult], path: Path) -> None:
    """Write all numbers as Parquet, replacing the file."""
    fresh = path.with_suffix(".part")
    parquet.write_table(tidy(results), fresh)
    fresh.replace(path)


def _rows(result: TrialResult) -> Iterator[dict[str, object]]:
    trial = result.trial
    tried = trial.model_dump(exclude={"method", "model"}) | {
        "method": trial.method.name,
        "bins": trial.preprocessing.bins,
        "batch_size": result.agreement.known_batch_size,
        "learning_rate": result.agreement.known_learning_rate,
        "hidden": trial.model.hidden,
        "agreement": json.dumps(trial.agreement().model_dump(exclude={"classes"}), sort_keys=True),
    }
    for figure in result.figures:
        yield tried | asdict(figure)
    steps_per_epoch = len(result.losses) // trial.epochs
    for step, loss in enumerate(result.losses):
        epoch = step // steps_per_epoch + 1
        yield tried | {"metric": "loss", "epoch": epoch, "step": step + 1, "value": loss}
    for part, size in result.sizes.items():
        yield tried | {"metric": "people", "part": part, "value": float(size)}
    for part, seconds in result.seconds.items():
        yield tried | {"metric": "seconds", "part": part, "value": seconds}
