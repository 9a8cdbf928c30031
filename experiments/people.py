"""The people of an experiment: the source of their data, and who is held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import Field
from pydantic import field_validator as check_field

from florist.common.core.errors import ConfigurationError
from florist.common.data.labels import read_labels
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import RawTable
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.settings.section import Section
from florist.experiments import click_data
from florist.experiments.simulation import World

if TYPE_CHECKING:
    import numpy.typing as npt
    from pydantic import ValidationInfo

    Rows = npt.NDArray[np.int64]

#: Incremented when the same settings give different people.
VERSION = 1


class Generated(Section):
    """Generated people: clicks on advertisements in Criteo's format."""

    people: int = Field(default=20_000, ge=100, description="Number of people.")
    seed: int = Field(default=1, ge=0, description="Seed of the generator.")


class HeldOut(Section):
    """Who is held out at random: validation people to choose settings, test people to measure."""

    test: float = Field(default=0.1, gt=0, lt=1, description="Fraction of people for the test.")
    validation: float = Field(
        default=0.1, ge=0, lt=1, description="Fraction of people for choosing settings; 0: none."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the choice.")

    @check_field("validation")
    @classmethod
    def _leaves_some(cls, validation: float, info: ValidationInfo) -> float:
        if validation + info.data.get("test", 0) >= 1:
            raise ValueError(
                "must leave people for training: test + validation must be less than 1"
            )
        return validation


class RealDataFolder(Section):
    """A public data set of two organisations (see `real_data.py`)."""

    name: str = Field(description="sba_loans, default_credit, diabetes130 or bank_marketing.")
    folder: Path = Field(
        strict=False, description="Contains a sub-folder with the files of the data set."
    )


class PeopleSettings(Section):
    """The source of the data: `generated`, `table` or `real`."""

    generated: Generated | None = Field(default=None, description="Generated people.")
    table: Table | None = Field(
        default=None, description="A file with ID, label and features, like a party's `data.train`."
    )
    real: RealDataFolder | None = Field(
        default=None, description="A public data set, already divided between two organisations."
    )
    rows: int | None = Field(
        default=None, ge=100, description="Number of rows to sample from the table; null: all."
    )
    classes: int = Field(default=2, ge=2, le=10_000, description="Number of classes of the label.")
    active_columns: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Features that the active party has; the passive party has all others.",
    )
    split: HeldOut = Field(default=HeldOut(), description="Who is held out.")

    def digest(self) -> str:
        """Return a digest that is equal for the same people and the same split.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        settings = self.model_dump_json(exclude={"table": {"path"}, "real": {"folder"}})
        found = hashlib.sha256(f"florist/people/{VERSION}{settings}".encode())
        files = [] if self.table is None else [(self.table.path, "data.table.path")]
        if self.real is not None:
            folder = self.real.folder / self.real.name
            files += [(path, "data.real.folder") for path in sorted(folder.glob("*"))]
        for path, key in files:
            try:
                with path.open("rb") as file:
                    found.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise ConfigurationError(
                    f"{path}: cannot be read: {error.strerror or error}; fix {key}"
                ) from None
        return found.hexdigest()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class People:
    """All features and labels; `train`, `validation` and `test` are disjoint sets of rows."""

    source: str
    columns: pa.Table
    labels: npt.NDArray[np.int64]
    train: Rows
    validation: Rows
    test: Rows
    active_columns: tuple[str, ...] = ()
    classes: int = 2

    @property
    def held_out(self) -> Rows:
        """The rows for validation, followed by those for the test."""
        return np.concatenate([self.validation, self.test])

    def worlds(
        self, passive: Rows, active: Rows, settings: PreprocessingSettings
    ) -> tuple[World, World]:
        """Return all people, and those held out, as inputs of the models.

        Each party's preprocessing is fitted to its own training rows, as in a real run.
        """
        theirs = [name for name in self.columns.column_names if name not in self.active_columns]
        bottom = fit_preprocessing(self._raw(theirs, passive), settings)
        everyone = np.arange(len(self.labels))
        world = World(
            bottom.transform(self._raw(theirs, everyone)), self.labels, bottom.cardinalities
        )
        if self.active_columns:
            own = list(self.active_columns)
            tower = fit_preprocessing(self._raw(own, active), settings)
            world = World(
                world.features,
                self.labels,
                bottom.cardinalities,
                tower.transform(self._raw(own, everyone)),
                tower.cardinalities,
            )
        return world, _only(world, self.held_out)

    def _raw(self, names: list[str], rows: Rows) -> RawTable:
        places = pa.array(rows)
        columns = self.columns.select(names).take(places)
        return RawTable.from_arrow(self.source, places.cast(pa.string()), columns)


def _only(world: World, rows: Rows) -> World:
    own = world.own_features
    return World(
        world.features.take(rows),
        world.labels[rows],
        world.cardinalities,
        None if own is None else own.take(rows),
        world.own_cardinalities,
    )


def load_people(settings: PeopleSettings) -> People:
    """Read or generate the people, and hold some out. For `real` use `load_any_people`.

    Raises:
        ConfigurationError: names the key, file or column and the fix.
    """
    source, columns, labels = _data(settings)
    random = np.random.default_rng(settings.split.seed)
    order = random.permutation(len(labels))[: settings.rows]
    cuts = np.cumsum(
        [round(part * len(order)) for part in (settings.split.test, settings.split.validation)]
    )
    test, validation, train = (np.sort(part) for part in np.split(order, cuts))
    for name, rows in (("test", test), ("validation", validation), ("training", train)):
        if len(rows) and len(np.unique(labels[rows])) < settings.classes:
            raise ConfigurationError(
                f"{source}: among the {len(rows):,} people for {name} a class of the label is not "
                "there; take more rows, or hold out more"
            )
    if unknown := [name for name in settings.active_columns if name not in columns.column_names]:
        raise ConfigurationError(
            f"data.active_columns: {source} has no feature {unknown[0]!r}; take it out"
        )
    if len(settings.active_columns) >= columns.num_columns:
        raise ConfigurationError(
            "data.active_columns: leaves no feature to the passive party; remove one"
        )
    return People(
        source,
        columns,
        labels,
        train,
        validation,
        test,
        settings.active_columns,
        settings.classes,
    )


def _data(settings: PeopleSettings) -> tuple[str, pa.Table, npt.NDArray[np.int64]]:
    if (settings.generated is None) == (settings.table is None):
        raise ConfigurationError("data: set exactly one of `generated` and `table`")
    if settings.generated is not None:
        made = click_data.generate(settings.generated.people, settings.generated.seed)
        return "generated people", made.features, made.labels
    assert settings.table is not None
    raw = read_whole_table(settings.table, "none")
    return raw.source, raw.columns, read_labels(raw, settings.classes).classes
