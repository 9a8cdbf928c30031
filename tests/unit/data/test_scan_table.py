"""Scanning a table in small parts gives the same results and errors as a slow, obvious reader."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data import category_counts, category_lookup, table_reader, text_files
from florist.common.data.category_lookup import CategoryLookup
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.id_check import fingerprint
from florist.common.data.labels import read_labels
from florist.common.data.preprocessing import Preprocessing, Vocabulary
from florist.common.data.scan_table import scan_table
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.storage.files import FolderStorage
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import fit_at_once, read_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.data.scan_table import TableScan
    from florist.common.data.text_files import TextLayout

#: Bytes per block of text, rows per row group, and values per part.
BLOCK, GROUP, VALUES = 160, 3, 12
PLENTY = 10**9
NO_MEMORY = FeatureStore(0, MemoryStorage())


@pytest.fixture(autouse=True)
def small_parts() -> Iterator[None]:
    """Use small parts and sum up counts often, so that a few rows are enough for a test."""

    def read_options(layout: TextLayout, *, use_threads: bool = True) -> arrow_csv.ReadOptions:
        return arrow_csv.ReadOptions(
            use_threads=use_threads, block_size=BLOCK, column_names=layout.names
        )

    with (
        mock.patch.object(text_files, "_read_options", read_options),
        mock.patch.object(table_reader, "_VALUES", VALUES),
        mock.patch.object(category_counts, "_MAX_PENDING", 2),
    ):
        yield


@dataclass
class ScanResult:
    """What training uses of a table."""

    fingerprint: str
    labels: tuple[list[int], tuple[str, ...]] | None
    preprocessing: tuple[Any, ...]
    numeric: list[list[float]]
    categories: list[list[int]]

    @classmethod
    def of(cls, digest: str, labels: Any, fitted: Preprocessing, features: Any) -> ScanResult:  # noqa: ANN401
        return cls(
            digest,
            (labels.classes.tolist(), labels.names) if labels else None,
            (
                fitted.settings,
                fitted.ranges,
                [(each.column, each.categories.to_pylist()) for each in fitted.vocabularies],
                fitted.bins,
            ),
            features.numeric.tolist(),
            features.categories.tolist(),
        )


def at_once(
    table: Table, chosen: PreprocessingSettings, known: Preprocessing | None = None
) -> ScanResult:
    """The slow version, with the whole table in memory."""
    raw = read_at_once(table, "strip", features=known.features if known else None)
    fitted = known or fit_at_once(raw, chosen)
    labels = read_labels(raw) if table.label else None
    return ScanResult.of(fingerprint(raw.ids), labels, fitted, fitted.transform(raw))


def by_parts(
    table: Table,
    chosen: PreprocessingSettings,
    known: Preprocessing | None = None,
    *,
    folder: Path,
    kept: int = 0,
    memory: int = 0,
) -> ScanResult:
    with_labels = table.label is not None

    def scan(*, with_ids: bool = False) -> TableScan:
        return scan_table(
            table,
            "strip",
            chosen,
            FeatureStore(kept, FolderStorage(folder / "work")),
            known=known,
            with_labels=with_labels,
            with_ids=with_ids,
        )

    first = scan()
    assert first.ids is None
    features = FeatureStore(memory, FolderStorage(folder / "work")).add(first)
    second = scan(with_ids=True)
    assert second.ids is not None
    assert fingerprint(second.ids) == second.fingerprint == first.fingerprint
    whole = encode_in_memory(second)
    assert np.array_equal(whole.numeric, features.numeric)
    assert np.array_equal(whole.categories, features.categories)
    check_whole_table(table, known)
    labels = first.labels.labels() if first.labels else None
    everyone = np.arange(first.rows)
    assert np.array_equal(features.take(everyone).numeric, features.numeric)
    assert np.array_equal(features.take(everyone).categories, features.categories)
    return ScanResult.of(first.fingerprint, labels, first.preprocessing, features)


def check_whole_table(table: Table, known: Preprocessing | None) -> None:
    chosen = known.features if known else None
    whole = read_whole_table(table, "strip", features=chosen)
    expected = read_at_once(table, "strip", features=chosen)
    assert list(whole.ids) == list(expected.ids)
    assert (whole.source, whole.label_column) == (expected.source, expected.label_column)
    if whole.label is not None:
        assert whole.label.equals(expected.label)
    assert whole.columns.column_names == expected.columns.column_names
    # NaN is not equal to itself.
    assert repr(whole.columns.to_pydict()) == repr(expected.columns.to_pydict())


def outcome(work: Callable[[], ScanResult]) -> ScanResult | str:
    try:
        return work()
    except ConfigurationError as error:
        return str(error)


def write(folder: Path, name: str, columns: dict[str, Any]) -> Path:
    path = folder / name
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path, row_group_size=GROUP)
        return path
    text = io.StringIO()
    rows = zip(*columns.values(), strict=True)
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


# --- results ---

numbers = st.sampled_from(["", "NA", "nan", "0", "-0.0", "1", " 2.5", "-3e2", "7", "1e300"])
words = st.sampled_from(["", "NA", "a", "b", "B", "\u00e9", "z,\n", "1", "2", "0x"])
typed_numbers = st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.5, -300.0, 1e300])
typed_words = st.none() | words
#: The column and the value of an invalid entry, if there is one.
problems = st.sampled_from(
    [None, None, None, ("id", ""), ("id", "p0"), ("y", ""), ("y", "2"), ("n", "x"), ("n", "inf")]
)


def columns_of(data: st.DataObject, rows: int, *, is_typed: bool) -> dict[str, list[Any]]:
    def values(one: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(one, min_size=rows, max_size=rows))

    columns = {
        "n": values(typed_numbers if is_typed else numbers),
        "m": values(typed_numbers if is_typed else numbers),
        "c": values(typed_words if is_typed else words),
        "d": values(typed_words if is_typed else words),
    }
    if not is_typed:
        # Numbers at first: that it is categorical is found late.
        columns["e"] = values(numbers)
        columns["e"][data.draw(st.integers(0, rows - 1))] = data.draw(words)
    return columns


@settings(deadline=None, max_examples=100)
@given(
    name=st.sampled_from(["people.csv", "people.csv.gz", "people.parquet"]),
    rows=st.integers(2, 20),
    numeric=st.sampled_from(["auto", ("n",), ("n", "m")]),
    categorical=st.sampled_from(["auto", ("d",), ("d", "c"), ()]),
    min_count=st.integers(1, 3),
    scaling=st.sampled_from(["linear", "log"]),
    problem=problems,
    kept=st.sampled_from([0, 500, PLENTY]),
    memory=st.sampled_from([0, PLENTY]),
    data=st.data(),
)
def test_a_scan_in_parts_matches_the_slow_reader(
    *,
    name: str,
    rows: int,
    numeric: Any,  # noqa: ANN401
    categorical: Any,  # noqa: ANN401
    min_count: int,
    scaling: Any,  # noqa: ANN401
    problem: tuple[str, str] | None,
    kept: int,
    memory: int,
    data: st.DataObject,
) -> None:
    columns = {
        "id": [f"p{row}" for row in range(rows)],
        "y": [
            "0",
            "1",
            *data.draw(st.lists(st.sampled_from("01"), min_size=rows - 2, max_size=rows - 2)),
        ],
        **columns_of(data, rows, is_typed=name.endswith(".parquet")),
    }
    if problem:
        column, value = problem
        row = data.draw(st.integers(1, rows - 1))
        if column != "n" or not name.endswith(".parquet"):
            columns[column][row] = value
        elif value == "inf":
            columns[column][row] = float(value)
    chosen = PreprocessingSettings(min_count=min_count, scaling=scaling)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table = Table(
            path=write(folder, name, columns),
            id_column="id",
            label="y",
            numeric=numeric,
            categorical=categorical,
        )
        expected = outcome(lambda: at_once(table, chosen))
        found = outcome(lambda: by_parts(table, chosen, folder=folder, kept=kept, memory=memory))
        assert found == expected
        if isinstance(expected, str):
            return
        # Another table, with the preprocessing of this one: some of its categories are new.
        others = columns_of(data, rows, is_typed=name.endswith(".parquet"))
        known = fit_at_once(read_at_once(table, "strip"), chosen)
        path = write(folder, f"test-{name}", {"id": columns["id"], "y": columns["y"], **others})
        other = table.model_copy(update={"path": path})
        expected = outcome(lambda: at_once(other, chosen, known))
        found = outcome(
            lambda: by_parts(other, chosen, known, folder=folder, kept=kept, memory=memory)
        )
        if isinstance(expected, str):  # if there are several, any of them may be reported
            assert isinstance(found, str)
            assert "must be numeric but contains text such as" in expected
            assert "must be numeric but contains text such as" in found
        else:
            assert found == expected


def test_categories_that_are_found_late_are_counted_once(tmp_path: Path) -> None:
    late = [*["1"] * VALUES, "2", "", "x", "y", "y", "z"]
    path = write(tmp_path, "people.csv", {"id": [f"p{n}" for n in range(len(late))], "e": late})
    table, chosen = Table(path=path, id_column="id"), PreprocessingSettings(min_count=2)
    found = by_parts(table, chosen, folder=tmp_path, kept=PLENTY)
    assert found == at_once(table, chosen)
    assert found.preprocessing[2] == [("e", ["1", "y"])]


def test_rows_without_an_id_column_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "criteo.txt"
    rows = ["\t".join([str(n % 2), *map(str, range(n, n + 13)), *(["ab"] * 26)]) for n in range(9)]
    path.write_text("\n".join(rows) + "\n")
    with mock.patch.object(
        text_files,
        "_read_options",
        lambda layout, **_: arrow_csv.ReadOptions(block_size=400, column_names=layout.names),
    ):
        table = Table.model_validate({"path": path, "format": "criteo"})
        chosen = PreprocessingSettings()
        assert by_parts(table, chosen, folder=tmp_path) == at_once(table, chosen)


# --- errors ---


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (b"p999,1,x,0\n", "row 72 (the header is row 1) has 4 values but the header has 3"),
        (b"p999,1,\xff,0\n", "row 72 (the header is row 1) is not UTF-8"),
        (b'p999,1,"not closed,0\n', "check for an unclosed double quote"),
    ],
    ids=["ragged", "not UTF-8", "a quote"],
)
def test_a_malformed_row_far_down_is_reported(tmp_path: Path, bad: bytes, expected: str) -> None:
    header = b"id,n,c,y\n" if b"x" not in bad else b"id,n,y\n"
    good = [
        b"p%d,%d,a,0\n" % (n, n) if b"x" not in bad else b"p%d,%d,0\n" % (n, n) for n in range(99)
    ]
    path = tmp_path / "people.csv"
    path.write_bytes(b"".join([header, *good[:70], bad, *good[70:]]))
    table, chosen = Table(path=path, id_column="id", label="y"), PreprocessingSettings()
    scanned = outcome(lambda: by_parts(table, chosen, folder=tmp_path))
    assert isinstance(scanned, str)
    assert expected in scanned
    with pytest.raises(ConfigurationError) as whole:
        read_whole_table(table, "strip")
    assert str(whole.value) == scanned


@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_a_table_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    table = Table(path=write(tmp_path, name, {"id": [], "n": []}), id_column="id")
    with pytest.raises(ConfigurationError, match="has no rows"):
        scan_table(table, "strip", PreprocessingSettings(), NO_MEMORY)


def test_without_a_label_column_nothing_is_read(tmp_path: Path) -> None:
    table = Table(path=write(tmp_path, "people.csv", {"id": ["", ""]}), id_column="id")
    with pytest.raises(ConfigurationError, match="the label column is not specified"):
        scan_table(table, "strip", PreprocessingSettings(), NO_MEMORY, with_labels=True)


@pytest.mark.parametrize("rows", [5, 9, 13])
def test_a_table_that_changes_between_the_passes_is_refused(tmp_path: Path, rows: int) -> None:
    def people(count: int) -> Path:
        ids = [f"p{n}" for n in range(count)]
        return write(
            tmp_path, "people.csv", {"id": ids, "n": [str(n * rows) for n in range(count)]}
        )

    scan = scan_table(
        Table(path=people(9), id_column="id"), "strip", PreprocessingSettings(), NO_MEMORY
    )
    people(rows)
    with pytest.raises(
        ConfigurationError, match=r"people\.csv: was modified while it was being read"
    ):
        list(scan.encoded())


def test_a_table_that_is_deleted_between_the_passes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "people.csv", {"id": ["a", "b"], "n": ["1", "2"]})
    scan = scan_table(Table(path=path, id_column="id"), "strip", PreprocessingSettings(), NO_MEMORY)
    path.unlink()
    with pytest.raises(ConfigurationError, match=r"people\.csv: cannot be read"):
        list(scan.encoded())


# --- memory and disk ---


def test_a_small_table_is_read_once_and_the_files_of_a_large_one_are_unlinked(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "people.csv", {"id": [f"p{n}" for n in range(30)], "n": ["1"] * 30})
    table, chosen = Table(path=path, id_column="id"), PreprocessingSettings()
    scan = scan_table(table, "strip", chosen, FeatureStore(PLENTY, MemoryStorage()))
    path.unlink()
    store = FeatureStore(2 * 30 * 4, FolderStorage(tmp_path / "work"))  # the number and its bin
    assert len(store.add(scan)) == 30
    assert store.memory == 0
    assert not (tmp_path / "work").exists()

    write(tmp_path, "people.csv", {"id": [f"p{n}" for n in range(30)], "n": ["1", "2"] * 15})
    features = store.add(scan_table(table, "strip", chosen, NO_MEMORY))
    path.unlink()
    assert list((tmp_path / "work").iterdir()) == []
    assert features.take(np.array([1, 0, 1])).numeric.tolist() == [[1], [0], [1]]
    assert not features.numeric.flags.writeable


@pytest.mark.parametrize("rows", [10, 10_000])
def test_a_full_disk_is_reported_in_advance_or_when_it_occurs(tmp_path: Path, rows: int) -> None:
    path = write(tmp_path, "people.parquet", {"id": list(range(rows)), "n": list(range(rows))})
    table = Table(path=path, id_column="id")
    with mock.patch.object(table_reader, "_VALUES", 1000):
        scan = scan_table(table, "strip", PreprocessingSettings(), NO_MEMORY)
        usage = mock.Mock(free=4 * rows - 1)
        with (
            mock.patch("shutil.disk_usage", return_value=usage),
            pytest.raises(ConfigurationError, match=r"work has space for 0\.0 GB, but up to"),
        ):
            FeatureStore(0, FolderStorage(tmp_path / "work")).add(scan)
        with (
            mock.patch(
                "tempfile.TemporaryFile", side_effect=lambda **_: Path("/dev/full").open("r+b")
            ),
            pytest.raises(
                ConfigurationError, match=r"work cannot be used: No space left on device"
            ),
        ):
            FeatureStore(0, FolderStorage(tmp_path / "work")).add(scan)


# --- categories ---

texts = st.lists(st.sampled_from(["", "a", "b", "ab", "\u00e9", "a" * 9, "a" * 8 + "b", "zz"]))


@settings(deadline=None)
@given(known=texts, values=texts, clash=st.booleans())
def test_lookups_match_arrow(known: list[str], values: list[str], *, clash: bool) -> None:
    vocabulary = Vocabulary.from_counts("c", pa.array(known, pa.string()).value_counts(), 1)
    digests = category_lookup._digests
    with mock.patch.object(
        category_lookup,
        "_digests",
        lambda each: digests(each) * np.uint64(0 if clash else 1),
    ):
        lookup = CategoryLookup(vocabulary.categories)
        column = pa.chunked_array([values[:2], values[2:]], pa.string())
        assert lookup(column).tolist() == vocabulary.indices(column).tolist()
