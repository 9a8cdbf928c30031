"""`florist init` with own tables: what is found by reading them, and what must be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.cli.init import Names, write_first_files
from florist.cli.own_tables import Hints, inspect_own_tables
from florist.common.core.errors import ConfigurationError
from florist.common.settings.loader import load_config

if TYPE_CHECKING:
    from pathlib import Path

LABELS = "customer,defaulted\nk1,0\nk2,1\nk3,0\nk4,1\n"
FEATURES = "customer;age;plan\nk1;31;basic\nk2;40;plus\nk9;31;plus\n"


def tables(folder: Path, active: str = LABELS, passive: str = FEATURES) -> tuple[Path, Path]:
    (folder / "a.csv").write_text(active)
    (folder / "p.csv").write_text(passive)
    return folder / "a.csv", folder / "p.csv"


def problem(folder: Path, active: str = LABELS, passive: str = FEATURES, **hints: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        inspect_own_tables(*tables(folder, active, passive), Hints(**hints))  # type: ignore[arg-type]
    return str(caught.value)


def test_all_is_found_and_written(tmp_path: Path) -> None:
    own = inspect_own_tables(*tables(tmp_path), Hints())
    names = Names("bank", "telco")
    write_first_files(tmp_path / "trial", names, "localhost:1", None, own_tables=own)
    active, passive = (load_config(tmp_path / "trial" / f"{role}.yml") for role in own)
    assert (active.role, passive.role) == ("active", "passive")
    assert active.data.train.path == tmp_path / "a.csv"
    assert (active.data.train.id_column, active.data.train.label) == ("customer", "defaulted")
    assert active.data.train.positive_label is None
    assert (passive.data.train.delimiter, passive.data.train.label) == (";", None)
    assert active.agreement == passive.agreement


def test_text_labels(tmp_path: Path) -> None:
    yes = LABELS.replace(",1", ",Yes").replace(",0", ",No")
    found = inspect_own_tables(*tables(tmp_path, yes), Hints())
    assert found["active"].settings["data.train.positive_label"] == "Yes"
    days = LABELS.replace(",1", ",<30").replace(",0", ",>30")
    assert "say which one is to be predicted with --positive-label" in problem(tmp_path, days)
    found = inspect_own_tables(*tables(tmp_path, days), Hints(positive_label="<30"))
    assert found["active"].settings["data.train.positive_label"] == "<30"
    assert "data.train.positive_label" not in found["passive"].settings


@pytest.mark.parametrize(
    ("labels", "names"),
    [("012", None), ("abc", None), ("123", ["1", "2", "3"])],
)
def test_three_classes_are_agreed(tmp_path: Path, labels: str, names: list[str] | None) -> None:
    rows = "".join(f"k{row},{label}\n" for row, label in enumerate(2 * labels))
    found = inspect_own_tables(*tables(tmp_path, f"customer,kind\n{rows}"), Hints())
    for table in found.values():
        assert table.settings["agreement.training.classes"] == 3
        assert table.settings.get("agreement.training.class_names") == names


def test_what_is_ambiguous_must_be_given(tmp_path: Path) -> None:
    wide = "customer,email,age,defaulted\nk1,a,1,0\nk2,b,1,1\n"
    assert "Give --label one of 'email', 'age', 'defaulted'" in problem(tmp_path, wide)
    both = "customer;email;age\nk1;a;1\nk2;b;1\n"
    text = problem(tmp_path, wide, both, label="defaulted")
    assert "several columns could be the IDs: 'customer', 'email'" in text
    hints = Hints(id_columns=("email",), label="defaulted")
    found = inspect_own_tables(*tables(tmp_path, wide, both), hints)
    assert {table.id_column for table in found.values()} == {"email"}
    hints = Hints(id_columns=("email", "customer"), label="defaulted")
    found = inspect_own_tables(*tables(tmp_path, wide, both), hints)
    assert [table.id_column for table in found.values()] == ["email", "customer"]
    assert "has no column 'e-mail'" in problem(tmp_path, wide, both, id_columns=("e-mail",))
    assert "has no column 'late' besides the ID" in problem(tmp_path, label="late")
    assert "so it has no IDs" in problem(tmp_path, "x,y\n1,0\n1,1\n1,1\n")


def test_parquet(tmp_path: Path) -> None:
    active, passive = tmp_path / "a.parquet", tmp_path / "p.parquet"
    parquet.write_table(pa.table({"no": [7, 8, 9], "y": [True, False, True]}), active)
    parquet.write_table(pa.table({"no": [7, 5, 9], "x": [0.5, 1.5, 2.5]}), passive)
    found = inspect_own_tables(active, passive, Hints())
    assert [table.id_column for table in found.values()] == ["no", "no"]
    assert found["active"].settings["data.train.label"] == "y"
