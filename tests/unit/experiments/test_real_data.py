"""Public data sets: small generated files of the same shape, and the real ones where they are."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.settings.data import PreprocessingSettings
from florist.common.settings.training import Model
from florist.experiments.methods import METHODS
from florist.experiments.people import HeldOut
from florist.experiments.real_data import REAL_DATA, load_real_data
from florist.experiments.trial import Trial, run_trial

ROWS = 400
RANDOM = np.random.default_rng(0)
SPLIT = HeldOut(test=0.25, validation=0.25)


def numbers() -> list[str]:
    return [f"{value:.3f}" for value in RANDOM.normal(size=ROWS)]


def texts(*known: str) -> list[str]:
    return [str(text) for text in RANDOM.choice(known, ROWS)]


def write_csv(path: Path, columns: dict[str, list[str]], separator: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(separator.join(row) + "\n" for row in rows)


def write_credit(folder: Path) -> None:
    ids = [str(row) for row in RANDOM.permutation(ROWS)]
    guest = {"id": ids, "y": texts("0", "1"), "x0": numbers(), "x1": numbers()}
    write_csv(folder / "default_credit/guest.csv.gz", guest)
    order = RANDOM.permutation(ROWS)
    host = {"id": [ids[row] for row in order], "x0": [ids[row] for row in order]}
    write_csv(folder / "default_credit/host.csv.gz", host)


STAY_COUNTS = ("time_in_hospital", "num_procedures", "number_diagnoses")
STAY_TEXTS = (
    *("race", "gender", "age", "medical_specialty", "diag_1", "diag_2", "diag_3"),
    *("admission_type_id", "discharge_disposition_id", "admission_source_id"),
)


def write_diabetes(folder: Path) -> None:
    columns = {
        "encounter_id": [str(row) for row in range(ROWS)],
        "patient_nbr": [str(row // 3) for row in range(ROWS)],
        "payer_code": texts("?", "MC"),
        "num_medications": texts("1", "9", "17"),
        "insulin": texts("No", "Up"),
        **{name: texts("1", "2", "5") for name in STAY_COUNTS},
        **{name: texts("1", "2", "?") for name in STAY_TEXTS},
        "readmitted": texts("NO", ">30", "<30"),
    }
    write_csv(folder / "diabetes130/diabetic_data.csv.gz", columns)


def write_bank(folder: Path) -> None:
    columns = {
        "age": texts("20", "30", "70"),
        **{
            name: texts('"a"', '"b"')
            for name in ("job", "marital", "education", "default", "housing", "loan", "contact")
        },
        "duration": texts("1", "1000"),
        "campaign": texts("1", "2"),
        "euribor3m": numbers(),
        "y": texts('"no"', '"yes"'),
    }
    quoted = {f'"{name}"': values for name, values in columns.items()}
    write_csv(folder / "bank_marketing/bank-additional-full.csv.gz", quoted, ";")


def write_loans(folder: Path) -> None:
    (folder / "sba_loans").mkdir(parents=True)
    ids = [str(row) for row in RANDOM.permutation(ROWS)]
    registry = pa.table(
        {
            "LoanNr_ChkDgt": pa.array(ids, pa.large_string()),
            "charged_off": pa.array(RANDOM.integers(0, 2, ROWS), pa.int8()),
            "State": pa.array(texts("CA", "NY"), pa.large_string()),
            "NoEmp": pa.array(texts("1", "20", ""), pa.large_string()),
        }
    )
    banks = pa.table(
        {
            "LoanNr_ChkDgt": pa.array(ids[::-1], pa.large_string()),
            "Bank": pa.array(texts("one", "two"), pa.large_string()),
            "GrAppv": pa.array([float(each) for each in ids[::-1]]),
        }
    )
    parquet.write_table(registry, folder / "sba_loans/registry.parquet")
    parquet.write_table(banks, folder / "sba_loans/bank.parquet")


WRITERS = {
    "sba_loans": write_loans,
    "default_credit": write_credit,
    "diabetes130": write_diabetes,
    "bank_marketing": write_bank,
}


@pytest.mark.parametrize("name", REAL_DATA.names)
def test_a_data_set_can_be_trained_on(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    people = load_real_data(name, tmp_path, split=SPLIT)
    every = np.concatenate([people.train, people.held_out])
    assert sorted(every.tolist()) == list(range(ROWS))
    assert people.active_columns
    assert set(people.active_columns) < set(people.columns.column_names)
    trial = Trial(
        method=METHODS["default"],
        alpha=0.3,
        beta=0.3,
        model=Model(hidden=[8, 8], tower=[8]),
        min_count=1,
    )
    assert 0 <= run_trial(people, trial, None).last("auc") <= 1


def test_columns_of_the_same_name_and_rows_of_the_same_id(tmp_path: Path) -> None:
    write_credit(tmp_path)
    people = load_real_data("default_credit", tmp_path, split=SPLIT)
    assert people.active_columns == ("x0", "x1")
    assert people.columns.column_names == ["x0", "x1", "host_x0"]
    assert people.columns.column("host_x0").to_pylist() == list(map(float, range(ROWS)))


def test_a_patient_is_held_out_with_all_stays(tmp_path: Path) -> None:
    write_diabetes(tmp_path)
    people = load_real_data("diabetes130", tmp_path, split=SPLIT)
    parts = [set((rows // 3).tolist()) for rows in (people.train, people.validation, people.test)]
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]
    assert "readmitted" not in people.columns.column_names
    assert "payer_code" not in people.active_columns


def test_the_duration_of_a_call_is_not_a_feature(tmp_path: Path) -> None:
    write_bank(tmp_path)
    people = load_real_data("bank_marketing", tmp_path, split=SPLIT)
    assert "duration" not in people.columns.column_names
    assert people.columns.column("age").type == pa.float64()
    assert people.columns.column("job").type == pa.string()


def test_missing_numbers_of_loans(tmp_path: Path) -> None:
    write_loans(tmp_path)
    people = load_real_data("sba_loans", tmp_path, rows=300, split=SPLIT)
    assert len(people.train) + len(people.held_out) == 300
    assert people.columns.column("NoEmp").null_count
    world, _ = people.worlds(people.train, people.train, PreprocessingSettings())
    assert world.own_features is not None
    assert world.own_features.categories[:, -1].min() == 0  # the bin of missing values


def test_files_that_are_missing_or_do_not_match(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not contain the data set diabetes130"):
        load_real_data("diabetes130", tmp_path)
    with pytest.raises(ConfigurationError, match="choose one of: sba_loans, default_credit"):
        load_real_data("unknown", tmp_path)
    write_loans(tmp_path)
    banks = tmp_path / "sba_loans/bank.parquet"
    parquet.write_table(parquet.read_table(banks).slice(1), banks)
    with pytest.raises(ConfigurationError, match="the same LoanNr_ChkDgt in both files"):
        load_real_data("sba_loans", tmp_path)


@pytest.mark.parametrize("name", REAL_DATA.names)
def test_the_published_files(name: str) -> None:
    folder = os.environ.get("FLORIST_REAL_DATA")
    if not folder or not (Path(folder) / name).is_dir():
        pytest.skip("set FLORIST_REAL_DATA to the folder with the published data sets")
    people = load_real_data(name, Path(folder))
    assert 0.1 < people.labels.mean() < 0.25
    assert len(people.labels) > 25_000
