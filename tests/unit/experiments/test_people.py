"""The people of an experiment: their source, and who is held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from florist.common.core.errors import ConfigurationError
from florist.common.settings.data import PreprocessingSettings, Table
from florist.experiments import click_data
from florist.experiments.people import Generated, HeldOut, PeopleSettings, load_people

if TYPE_CHECKING:
    from pathlib import Path

LINEAR = PreprocessingSettings(min_count=1, scaling="linear", bins=0)


def table(path: Path, rows: int = 200) -> Table:
    """A number, a category that is different in each row, and a label."""
    columns = {
        "who": [f"p{row}" for row in range(rows)],
        "age": list(range(rows)),
        "town": [f"t{row}" for row in range(rows)],
        "late": [row % 2 for row in range(rows)],
    }
    csv.write_csv(pa.table(columns), path)
    return Table(path=path, id_column="who", label="late")


def test_the_parts_are_disjoint_and_complete() -> None:
    settings = PeopleSettings(generated=Generated(people=1000), split=HeldOut(test=0.2))
    people = load_people(settings)
    parts = (people.train, people.validation, people.test)
    assert [len(part) for part in parts] == [700, 100, 200]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(1000))
    assert np.array_equal(people.test, load_people(settings).test)
    other = settings.model_copy(update={"split": HeldOut(test=0.2, seed=1)})
    assert not np.array_equal(people.test, load_people(other).test)


def test_rows_of_a_table_can_be_sampled(tmp_path: Path) -> None:
    settings = PeopleSettings(table=table(tmp_path / "all.csv"), rows=100)
    people = load_people(settings)
    assert [len(part) for part in (people.train, people.validation, people.test)] == [80, 10, 10]


def test_a_file_in_criteo_format_can_be_read(tmp_path: Path) -> None:
    data = click_data.generate(300, 1)
    path = tmp_path / "criteo.tsv"
    columns = {"label": pa.array(data.labels)} | dict(
        zip(data.features.column_names, data.features.columns, strict=True)
    )
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    csv.write_csv(pa.table(columns), path, options)
    people = load_people(
        PeopleSettings(table=Table(path=path, format="criteo", id_column="row_number"))
    )
    assert np.array_equal(people.labels, data.labels)
    assert people.columns.column_names == data.features.column_names


def test_preprocessing_is_fitted_to_the_passive_party_s_own_rows(tmp_path: Path) -> None:
    people = load_people(PeopleSettings(table=table(tmp_path / "all.csv")))
    known = people.train[:50]
    world, held_out = people.worlds(known, people.train, LINEAR)
    assert world.cardinalities == (51,)
    categories = world.features.categories[:, 0]
    assert (categories[known] > 0).all()
    assert (np.delete(categories, known) == 0).all()  # never seen: also those held out
    assert world.features.numeric[known].max() == 1
    assert np.array_equal(held_out.labels, people.labels[people.held_out])
    assert np.array_equal(held_out.features.numeric, world.features.numeric[people.held_out])


def test_the_active_party_can_have_features(tmp_path: Path) -> None:
    settings = PeopleSettings(table=table(tmp_path / "all.csv"), active_columns=("town",))
    people = load_people(settings)
    world, held_out = people.worlds(people.train, people.train[:10], LINEAR)
    assert world.cardinalities == ()
    assert world.own_cardinalities == (11,)
    assert world.own_features is not None
    assert held_out.own_features is not None
    assert len(held_out.own_features) == len(people.held_out)


def test_the_digest_depends_on_the_contents(tmp_path: Path) -> None:
    first, copy = (PeopleSettings(table=table(tmp_path / f"{name}.csv")) for name in ("a", "b"))
    assert first.digest() == copy.digest()
    changed = PeopleSettings(table=table(tmp_path / "c.csv", rows=201))
    split = first.model_copy(update={"split": HeldOut(seed=1)})
    assert len({first.digest(), changed.digest(), split.digest()}) == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "data: set exactly one of `generated` and `table`"),
        ({"generated": Generated(), "active_columns": ("town",)}, "has no feature 'town'"),
        (
            {"generated": Generated(people=100), "split": HeldOut(test=0.01)},
            "a class of the label is not there",
        ),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_people(PeopleSettings(**settings))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = Table(path=tmp_path / "none.csv", id_column="who", label="late")
    with pytest.raises(ConfigurationError, match=r"none\.csv.*fix data\.table\.path"):
        PeopleSettings(table=missing).digest()
