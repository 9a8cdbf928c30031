"""IDs read in parts are the same as IDs read at once, with the same errors."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data import id_check, table_ids
from florist.common.data.id_check import Fingerprint, IdCheck, fingerprint
from florist.common.data.table_ids import TableIds, normalised_ids
from florist.common.settings.data import Table
from florist.common.settings.formats import ROW_NUMBER
from florist.common.storage.external_sorter import sorting
from florist.common.storage.files import FolderStorage
from florist.common.storage.id_column import IdColumn
from tests.support.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

PEOPLE = [f" Person-{number} " for number in range(1000)]


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    path = tmp_path / f"people.{request.param}"
    if request.param == "parquet":
        parquet.write_table(pa.table({"id": PEOPLE}), path, row_group_size=64)
    else:
        text = "\n".join(["id", *PEOPLE, ""]).encode()
        path.write_bytes(gzip.compress(text) if request.param == "csv.gz" else text)
    return Table(path=path, id_column="id")


def slowly_normalised(text: str, normalisation: str) -> bytes:
    stripped = text if normalisation == "none" else text.strip()
    return (stripped.lower() if normalisation == "strip-lower" else stripped).encode()


@pytest.mark.parametrize("normalisation", ["none", "strip", "strip-lower"])
@pytest.mark.parametrize("rows", [1, 7, 999, 1000, 5000])
def test_batches_are_the_whole_column(table: Table, normalisation: str, rows: int) -> None:
    ids = TableIds(table, normalisation, MemoryStorage())  # type: ignore[arg-type]
    whole = IdColumn.from_bytes(slowly_normalised(each, normalisation) for each in PEOPLE)
    batches = list(ids.batches(rows))
    assert [each for batch in batches for each in batch] == list(whole)
    assert all(len(batch) == rows for batch in batches[:-1])
    assert len(ids) == len(whole)
    assert ids.fingerprint == fingerprint(whole)
    assert [list(batch) for batch in whole.batches(rows)] == [list(batch) for batch in batches]


def test_row_numbers_continue_from_part_to_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clicks.tsv"
    path.write_text("".join(f"{row % 2}{chr(9) * 39}\n" for row in range(50)))
    numbered = Table(path=path, format="criteo", id_column=ROW_NUMBER)
    monkeypatch.setattr(table_ids, "_ROWS", 7)
    ids = TableIds(numbered, "none", MemoryStorage())
    assert [int(each) for batch in ids.batches(9) for each in batch] == list(range(1, 51))
    expected = IdColumn.from_bytes(str(row).encode() for row in range(1, 51))
    assert ids.fingerprint == fingerprint(expected)


def test_repr_contains_no_ids(table: Table) -> None:
    assert repr(TableIds(table, "none", MemoryStorage())) == "TableIds(1000 IDs)"


def test_a_table_that_changes_between_two_passes_is_refused(table: Table) -> None:
    if table.path.suffix == ".gz":
        pytest.skip("the same as without .gz")
    ids = TableIds(table, "none", MemoryStorage())
    for people in (PEOPLE[:-1], [*PEOPLE, "one more"], [*PEOPLE[:-1], "another"]):
        if table.path.suffix == ".parquet":
            parquet.write_table(pa.table({"id": people}), table.path)
        else:
            table.path.write_text("\n".join(["id", *people, ""]))
        with pytest.raises(ConfigurationError, match="was modified"):
            list(ids.batches(100))


@pytest.mark.parametrize(
    "people",
    [
        ["a", "", "b", " "],
        ["a", "b", "a"],
        ["a", "b", "c", "a ", "b"],
        [""],
    ],
)
def test_errors_are_the_same_as_for_the_whole_column(tmp_path: Path, people: list[str]) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"id": people}), path)
    table = Table(path=path, id_column="id")
    whole = normalised_ids(pa.chunked_array([people]), "", "strip")
    check = IdCheck()
    check.add(whole)
    with pytest.raises(ConfigurationError) as expected:
        check.finish(f"{path}, column 'id' (normalisation `strip`)", lambda: [whole])
    with pytest.raises(ConfigurationError) as parts:
        TableIds(table, "strip", MemoryStorage())
    assert parts.value.reason == expected.value.reason


@settings(deadline=None)
@given(ids=st.lists(st.binary(min_size=1, max_size=12), max_size=30), data=st.data())
def test_the_division_into_parts_makes_no_difference(ids: list[bytes], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5).map(sorted))
    column = IdColumn.from_bytes(ids)
    parts = [column.slice(*span) for span in pairwise([0, *cuts, len(ids)])]
    whole, check = Fingerprint(), IdCheck()
    for part in parts:
        whole.add(part)
        check.add(part)
    assert whole.hexdigest() == fingerprint(column)
    if len(set(ids)) == len(ids):
        summary = check.finish("here", lambda: parts)
        assert (summary.count, summary.fingerprint) == (len(ids), fingerprint(column))
    elif all(each.isascii() for each in ids):
        with pytest.raises(ConfigurationError, match="more than once"):
            check.finish("here", lambda: parts)


# --- more IDs than fit in memory ---


def result_of(check: IdCheck, parts: list[IdColumn]) -> object:
    """The result of a check of these parts: the summary or the error message."""
    for part in parts:
        check.add(part)
    try:
        return check.finish("here", lambda: parts)
    except ConfigurationError as error:
        return error.reason


@settings(deadline=None)
@given(
    people=st.lists(st.integers(0, 300), max_size=200),
    rows=st.integers(1, 20),
    memory=st.integers(0, 40),
    most=st.integers(1, 10),
)
def test_sorting_digests_on_disk_gives_the_same_result(
    people: list[int], rows: int, memory: int, most: int
) -> None:
    """With little memory, hence many runs and levels, and with more repeated IDs than are named."""
    parts = list(IdColumn.from_bytes(str(each).encode() for each in people).batches(rows))
    with (
        pytest.MonkeyPatch.context() as patch,
        sorting(MemoryStorage(), 8, memory * 48, 0) as sorter,
    ):
        patch.setattr(id_check, "_MAX_SUSPECTS", most)
        result = result_of(IdCheck(sorter), parts)
        assert result == result_of(IdCheck(), parts)
    repeated = {each for each in people if people.count(each) > 1}
    assert isinstance(result, str) == bool(repeated)
    if isinstance(result, str):
        assert ("at least" in result) == (len(repeated) > most)


def test_different_ids_with_equal_digests_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [IdColumn.from_bytes([b"a", b"bb"]), IdColumn.from_bytes([b"ccc", b"dd"])]
    monkeypatch.setattr(id_check, "quick_digests", lambda ids: np.diff(ids.offsets) * 0 + 7)
    with sorting(MemoryStorage(), 8, 0, 0) as sorter:
        assert result_of(IdCheck(sorter), parts) == result_of(IdCheck(), parts)
        assert not isinstance(result_of(IdCheck(), parts), str)


def test_few_ids_need_no_disk_and_many_leave_no_files(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    few = TableIds(table, "none", FolderStorage(work))
    assert not work.exists()
    monkeypatch.setattr(id_check, "_SORT_MEMORY", 48 * 100)
    assert TableIds(table, "none", FolderStorage(work)).fingerprint == few.fingerprint
    assert list(work.iterdir()) == []


def test_a_full_disk_is_reported(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FolderStorage):
        @contextmanager
        def scratch(self) -> Iterator[BinaryIO]:
            with self.disk_errors(), open("/dev/full", "r+b", buffering=0) as file:  # noqa: PTH123
                yield file

    monkeypatch.setattr(id_check, "_SORT_MEMORY", 48 * 100)
    with pytest.raises(ConfigurationError, match=r"work.*No space left.*start again"):
        TableIds(table, "none", Full(tmp_path / "work"))
