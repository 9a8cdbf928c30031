"""A folder of files is read as one table."""

from __future__ import annotations

import gzip
import io
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.scan_table import scan_table
from florist.common.data.table_files import open_table_files
from florist.common.data.table_ids import TableIds
from florist.common.data.table_reader import read_whole_table
from florist.common.data.text_files import TextLayout
from florist.common.settings.data import PreprocessingSettings, Table
from tests.support.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 300
NO_MEMORY = FeatureStore(0, MemoryStorage())
TABLE = pa.table(
    {
        "id": [f"person {n}" for n in range(ROWS)],
        "age": [str(n % 80) for n in range(ROWS)],
        "town": [f"a, {n % 7}" for n in range(ROWS)],
    }
)
ENDINGS = ["csv", "csv.gz", "parquet"]


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=40)
        return
    text = io.BytesIO()
    csv.write_csv(table, text)
    path.write_bytes(gzip.compress(text.getvalue()) if path.suffix == ".gz" else text.getvalue())


def write_parts(folder: Path, ending: str, cuts: list[int]) -> Path:
    """Also write parts without rows, and files of other tools, which are ignored."""
    folder.mkdir()
    parts = list(enumerate(pairwise([0, *sorted(cuts), ROWS])))
    for number, (start, stop) in reversed(parts):
        part = TABLE.slice(start, stop - start)
        write(
            part.select(["town", "id", "age"]) if number % 2 else part,
            part_path(folder, number, ending),
        )
    (folder / "_SUCCESS").touch()
    (folder / f".part.{ending}.crc").write_bytes(b"not a table")
    (folder / f"part-none.{ending}").touch()
    return folder


def part_path(folder: Path, number: int, ending: str) -> Path:
    return folder / f"part-{number:03d}.{ending}"


@pytest.mark.parametrize("ending", ENDINGS)
@given(
    cuts=st.lists(st.integers(0, ROWS), max_size=5),
    rows=st.integers(1, 2 * ROWS),
    skip=st.integers(0, ROWS + 5),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_all_rows_in_order(
    tmp_path_factory: pytest.TempPathFactory, ending: str, cuts: list[int], rows: int, skip: int
) -> None:
    folder = write_parts(tmp_path_factory.mktemp("table") / "people", ending, cuts)
    file = open_table_files(folder, TextLayout())
    assert sorted(file.names) == sorted(TABLE.column_names)
    wanted = ["town", "id"]
    whole = TABLE.select(wanted)
    found = list(file.batches(wanted, rows, skip))
    if skip >= ROWS:
        assert found == []
        return
    tables, fractions = zip(*found, strict=True)
    assert [table.num_rows for table in tables[:-1]] == [rows] * (len(tables) - 1)
    assert pa.concat_tables(tables).combine_chunks().equals(whole.slice(skip).combine_chunks())
    assert list(fractions) == sorted(fractions)
    assert fractions[0] > 0
    assert fractions[-1] <= 1
    if ROWS not in cuts:  # otherwise the last files have no rows
        assert fractions[-1] == pytest.approx(1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_ids_and_features_are_the_same_as_of_a_single_file(tmp_path: Path, ending: str) -> None:
    folder = write_parts(tmp_path / "people", ending, [10, 10, 130])
    write(TABLE, tmp_path / f"whole.{ending}")
    parts = Table(path=folder, id_column="id", numeric=("age",))
    one = Table(path=tmp_path / f"whole.{ending}", id_column="id", numeric=("age",))
    if ending == "parquet":
        parts, one = (each.model_copy(update={"numeric": ()}) for each in (parts, one))
    ids = [TableIds(table, "strip", MemoryStorage()) for table in (parts, one)]
    assert ids[0].fingerprint == ids[1].fingerprint
    chosen = PreprocessingSettings()
    assert read_whole_table(parts, "strip").columns.equals(read_whole_table(one, "strip").columns)
    scans = [scan_table(table, "strip", chosen, NO_MEMORY) for table in (parts, one)]
    ours, expected = (encode_in_memory(each) for each in scans)
    assert ours.numeric.tolist() == expected.numeric.tolist()
    assert ours.categories.tolist() == expected.categories.tolist()


# --- errors ---


def refusal(folder: Path, names: tuple[str, ...] = ("id", "age")) -> str:
    with pytest.raises(ConfigurationError) as error:
        list(open_table_files(folder, TextLayout()).batches(list(names), 100))
    return str(error.value).removeprefix(f"{folder}")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_without_a_column(tmp_path: Path, ending: str) -> None:
    folder = write_parts(tmp_path / "people", ending, [100])
    write(TABLE.rename_columns(["id", "aged", "town"]), part_path(folder, 1, ending))
    assert refusal(folder).startswith(
        f"/part-001.{ending}: has no column 'age'; did you mean 'aged'?"
    )


def test_a_file_with_other_types(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "parquet", [100])
    ages = pa.array(range(ROWS), pa.int64())
    write(TABLE.set_column(1, "age", ages), part_path(folder, 1, "parquet"))
    assert refusal(folder) == (
        "/part-001.parquet: column 'age' has type int64, but string in part-000.parquet; write "
        "all files of the folder with the same types"
    )
    batches = open_table_files(folder, TextLayout()).batches(["id"], 50)
    assert sum(table.num_rows for table, _ in batches) == 100 + ROWS


def test_errors_about_malformed_rows_name_the_file(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [100])
    part_path(folder, 1, "csv").write_text("id,age,town\na,1,b\nc,2\n")
    assert refusal(folder).startswith("/part-001.csv: row 3 (the header is row 1) has 2 values")


def test_files_of_two_kinds(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [])
    write(TABLE, folder / "more.parquet")
    assert refusal(folder) == (
        ": contains text files (such as part-000.csv) and Parquet files (such as more.parquet); "
        "use one format for all files of a table"
    )


def test_a_file_that_is_not_a_table(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [])
    (folder / "readme.md").write_text("people")
    assert refusal(folder).startswith(
        "/readme.md: the file name must end in .csv, .csv.gz or .parquet"
    )


def test_a_folder_in_the_folder(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [])
    (folder / "year=2026").mkdir()
    assert refusal(folder).startswith("/year=2026: is not a regular file; specify a file, or a")


@pytest.mark.parametrize("name", ["_SUCCESS", ".hidden.csv", "empty.csv"])
def test_a_folder_without_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert refusal(tmp_path).startswith(": the folder contains no table files; specify")


def test_a_folder_without_a_row(tmp_path: Path) -> None:
    for number in range(2):
        write(TABLE.slice(0, 0), tmp_path / f"{number}.parquet")
    with pytest.raises(ConfigurationError, match="has no rows; a table needs at least one"):
        list(open_table_files(tmp_path, TextLayout()).batches(["id"], 50))
    with pytest.raises(ConfigurationError, match="has no rows; a table needs at least one"):
        TableIds(Table(path=tmp_path, id_column="id"), "none", MemoryStorage())


# --- modified tables ---


def test_the_stamp_changes_with_every_modification(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [100])
    file, first = open_table_files(folder, TextLayout()), part_path(folder, 0, "csv")
    seen = [file.stamp()]
    assert file.stamp() == seen[0]
    os.utime(first, ns=(1, 1))
    seen.append(file.stamp())
    write(TABLE, folder / "more.csv")
    seen.append(file.stamp())
    first.unlink()
    seen.append(file.stamp())
    assert len(set(seen)) == 4
    for rest in folder.iterdir():
        rest.unlink()
    assert file.stamp() == ()


def test_a_file_that_is_deleted_before_it_is_read(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [100])
    batches = open_table_files(folder, TextLayout()).batches(["id"], 50)
    next(batches)
    part_path(folder, 1, "csv").unlink()
    with pytest.raises(ConfigurationError, match=r"part-001\.csv: cannot be read"):
        list(batches)


def test_a_table_that_changes_while_it_is_read(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "people", "csv", [100])
    scan = scan_table(
        Table(path=folder, id_column="id"), "strip", PreprocessingSettings(), NO_MEMORY
    )
    write(TABLE, folder / "more.csv")
    with pytest.raises(ConfigurationError, match="was modified while it was being read"):
        encode_in_memory(scan)
