"""Generated tables for first runs, the demo, tests and benchmarks; `florist init` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv

from florist.experiments import click_data

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from florist.common.core.roles import RoleName

    Rows = npt.NDArray[np.int64]


#: Settings for trials with so few people that the limits on the overlap would stop them.
ANY_OVERLAP: dict[str, object] = {
    "agreement.union.overlap.minimum": 0,
    "agreement.union.overlap.minimum_share": 0.0,
    "agreement.union.overlap.maximum_share": 1.0,
}


class Sample(Protocol):
    """Tables for both parties, and the settings that go with them."""

    @property
    def id_column(self) -> str: ...

    @property
    def suffix(self) -> str:
        """The file name suffix of the tables: .csv or .parquet."""
        ...

    def write(self, active: Path, passive: Path) -> None:
        """Write both parties' tables; the paths are those of the training tables."""
        ...

    def settings(self, role: RoleName) -> dict[str, object]:
        """Keys of the configuration that differ from their defaults."""
        ...


@dataclass(frozen=True, slots=True)
class IdSample:
    """Tables of IDs only: the number of people of each party, and of both."""

    active: int
    passive: int
    shared: int
    seed: int = 0

    id_column = "person"
    suffix = ".csv"

    def write(self, active: Path, passive: Path) -> None:
        random = np.random.default_rng(self.seed)
        everyone = self.active + self.passive - self.shared
        people = np.array([f"person-{number:08d}@example.org" for number in range(everyone)])
        people = random.permutation(people)
        for path, members in (
            (active, people[: self.active]),
            (passive, people[self.active - self.shared :]),
        ):
            csv.write_csv(pa.table({self.id_column: random.permutation(members)}), path)

    def settings(self, role: RoleName) -> dict[str, object]:
        del role
        return {}


@dataclass(frozen=True, slots=True)
class ClickSample:
    """Generated clicks: the active party has the labels, the passive party the features.

    Of the training people, the passive party lacks a fraction `alpha` and the active party a
    fraction `beta`, independently. Both parties have all test people. The evaluation tables have
    other people, of whom each party has some.
    """

    people: int = 120_000
    test_fraction: float = 0.2
    alpha: float = 0.5
    beta: float = 0.5
    seed: int = 1
    #: Evaluation people as a fraction of `people`, and the fraction of them that each party has.
    evaluation_fraction: float = 0.25
    evaluation_active: float = 0.4
    evaluation_passive: float = 0.8

    id_column = click_data.ID_COLUMN
    suffix = ".csv"

    def data(self) -> tuple[click_data.ClickData, click_data.ClickSplit]:
        """Return all training and test people, and the rows of each party."""
        data = click_data.generate(self.people, self.seed)
        return data, click_data.split(data, self.test_fraction, self.alpha, self.beta, self.seed)

    def evaluation_data(self) -> tuple[click_data.ClickData, dict[RoleName, Rows]]:
        """Return the evaluation people, and the rows of each party."""
        data = click_data.generate(
            round(self.evaluation_fraction * self.people), self.seed, sample=2
        )
        random = np.random.default_rng(self.seed)
        shares: dict[RoleName, float] = {
            "active": self.evaluation_active,
            "passive": self.evaluation_passive,
        }
        return data, {
            role: random.permutation(len(data))[: round(share * len(data))]
            for role, share in shares.items()
        }

    def write(self, active: Path, passive: Path) -> None:
        people, whose = self.evaluation_data()
        click_data.write_table(
            click_data.active_table(people, whose["active"]), evaluation_path(active)
        )
        click_data.write_table(
            click_data.passive_table(people, whose["passive"]), evaluation_path(passive)
        )
        data, who = self.data()
        for path, rows in ((active, who.active), (held_out_path(active), who.test)):
            click_data.write_table(click_data.active_table(data, rows), path)
        for path, rows in ((passive, who.passive), (held_out_path(passive), who.test)):
            click_data.write_table(click_data.passive_table(data, rows), path)

    def settings(self, role: RoleName) -> dict[str, object]:
        common = {
            "data.preprocessing.min_count": 5,
            "data.preprocessing.scaling": "log",
            "training.threads": 1,
            "agreement.training.micro_batch": 128,
            "agreement.training.test_table": True,
            "agreement.evaluation.table": True,
        }
        own = {"data.train.label": click_data.LABEL} if role == "active" else {}
        return common | own


def held_out_path(train: Path) -> Path:
    """Return the path of the test table that belongs to a training table."""
    return train.with_name(f"{train.stem}-test{train.suffix}")


def evaluation_path(train: Path) -> Path:
    """Return the path of the evaluation table that belongs to a training table."""
    return train.with_name(f"{train.stem}-evaluation{train.suffix}")
