"""People split between two parties, as the tables that both need for a real run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import torch
from pyarrow import parquet
from threadpoolctl import threadpool_limits

from florist.common.core.progress import NoProgress
from florist.common.training.own_model import OwnModelSetup, train_own_model
from florist.experiments.methods import METHODS
from florist.experiments.sample_data import ANY_OVERLAP, held_out_path
from florist.experiments.trial import TrialResult, quality

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from florist.common.core.roles import RoleName
    from florist.experiments.people import People
    from florist.experiments.simulation import Holdings
    from florist.experiments.trial import Trial, TrialAudit

LABEL = "label_of_person"

#: The learner of the default, without a peer and without noise; for `run_alone`.
ALONE = METHODS["baseline-partial-default"].but("own-model", aggregate={"privacy": None})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SplitPeople:
    """The tables of both parties, split as in a trial; both have all test people.

    Settings have their defaults, except for the limits on the overlap and the test table.
    """

    people: People
    holdings: Holdings

    id_column = "person"
    suffix = ".parquet"

    def columns(self, role: RoleName) -> list[str]:
        """Return the features of a party."""
        own = self.people.active_columns
        return [
            name for name in self.people.columns.column_names if (name in own) == (role == "active")
        ]

    def table(self, role: RoleName, rows: npt.NDArray[np.int64]) -> pa.Table:
        """Return IDs, the label at the active party, and the features of a party."""
        places = pa.array(rows)
        table = self.people.columns.select(self.columns(role)).take(places)
        if role == "active":
            table = table.add_column(0, LABEL, pa.array(self.people.labels[rows]))
        return table.add_column(0, self.id_column, places.cast(pa.string()))

    def write(self, active: Path, passive: Path) -> None:
        """Write both parties' training and test tables."""
        whose = {"active": self.holdings.active, "passive": self.holdings.passive}
        paths: dict[RoleName, Path] = {"active": active, "passive": passive}
        for role, path in paths.items():
            parquet.write_table(self.table(role, whose[role]), path)
            parquet.write_table(self.table(role, self.people.test), held_out_path(path))

    def settings(self, role: RoleName) -> dict[str, object]:
        """Return the keys of the configuration that differ from their defaults."""
        own = {"data.train.label": LABEL} if role == "active" else {}
        return {
            **ANY_OVERLAP,
            "agreement.training.test_table": True,
            # Two processes on one machine: more threads would only wait for each other.
            "training.threads": 1,
            "training.worth": False,  # the study has its own baselines
            **own,
        }


def run_alone(people: People, trial: Trial, audit: TrialAudit | None) -> TrialResult:  # noqa: ARG001 - nobody to attack
    """Train on the active party's own rows and features only, as it could without a peer.

    It is the baseline of a party's report (`own_model.py`).
    """
    started = time.monotonic()
    split = trial.model_copy(update={"method": METHODS["default"]}).holdings(people.train)
    own = split.active
    with threadpool_limits(1):  # as in `run_trial`
        world, held_out = people.worlds(split.passive, own, trial.preprocessing)
        features = world.own_features
        setup = OwnModelSetup(
            trial.agreement(people.classes),
            trial.model,
            trial.optimiser,
            0 if features is None else features.numeric.shape[1],
            world.own_cardinalities,
            torch.device("cpu"),
            trial.seed,
        )
        mine = None if features is None else features.take(own)
        model = train_own_model(setup, mine, world.labels[own], NoProgress())
        predictions = model.predict(held_out.own_features, len(held_out.labels))
    return TrialResult(
        trial,
        tuple(quality(people, [predictions])),
        (),
        {"active": len(own), "passive": 0, "shared": 0, "union": len(own)},
        {"training": time.monotonic() - started, "audit": 0.0},
    )
