"""Reading IDs, label and features: the columns that `auto` finds, and errors."""

from __future__ import annotations

import csv
import gzip
import io
import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data.column_values import MISSING
from florist.common.data.raw_table import FeatureColumns, RawTable
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import Table
from tests.support.tables import read_ids

COLUMNS = ("id", "age", "city", "zip", "y")
ROWS = (
    ("a1", "30", "Rome", "007", "1"),
    ("a2", "", "", "010", "0"),
    ("a3", "4.5", "NA", "100", "0"),
)


def write_csv(folder: Path, rows: Any = (COLUMNS, *ROWS), name: str = "people.csv") -> Path:  # noqa: ANN401
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    content = text.getvalue().encode()
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def write_parquet(folder: Path, **columns: Any) -> Path:  # noqa: ANN401
    path = folder / "people.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def read(path: Path, features: FeatureColumns | None = None, **settings: Any) -> RawTable:  # noqa: ANN401
    return read_whole_table(
        Table(path=path, **{"id_column": "id", **settings}), "strip", features=features
    )


def refusal(path: Path, **settings: Any) -> str:  # noqa: ANN401
    with pytest.raises(ConfigurationError) as caught:
        read(path, **settings)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.isprintable()
    assert str(path) not in caught.value.for_peer
    return text.removeprefix(str(path)).lstrip(":, ")


def values(raw: RawTable) -> dict[str, list[Any]]:
    """The features, with None for NaN."""
    return {
        name: [None if each != each else each for each in column.to_pylist()]  # noqa: PLR0124
        for name, column in zip(raw.columns.column_names, raw.columns.columns, strict=True)
    }


# --- columns and their kinds ---


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz", "people.tsv", "people.txt"])
def test_auto_reads_columns_of_numbers_as_numeric_and_others_as_categorical(
    tmp_path: Path, name: str
) -> None:
    raw = read(write_csv(tmp_path, name=name), label="y")
    assert list(raw.ids) == [b"a1", b"a2", b"a3"]
    assert raw.features == FeatureColumns(numeric=("age", "zip"), categorical=("city",))
    assert values(raw) == {
        "age": [30, None, 4.5],
        "zip": [7, 10, 100],
        "city": ["Rome", "", "NA"],
    }
    assert raw.label is not None
    assert raw.label.to_pylist() == ["1", "0", "0"]
    assert raw.label_column == "y"
    assert repr(raw) == "RawTable(3 rows, 3 features)"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (("age", "zip", "y"), ("city",))),
        ({"categorical": ["zip"], "label": "y"}, (("age",), ("zip",))),
        ({"categorical": [], "label": "y"}, (("age", "zip"), ())),
        ({"numeric": ["zip"], "label": "y"}, (("zip",), ("age", "city"))),
        ({"numeric": [], "label": "y"}, ((), ("age", "city", "zip"))),
        ({"numeric": ["zip", "age"], "categorical": ["city"]}, (("zip", "age"), ("city",))),
        ({"numeric": [], "categorical": ["zip", "city"]}, ((), ("zip", "city"))),
        ({"numeric": [], "categorical": [], "label": "y"}, ((), ())),
    ],
)
def test_listed_columns_are_used_exactly_and_auto_takes_the_rest(
    tmp_path: Path, settings: dict[str, Any], expected: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    raw = read(write_csv(tmp_path), **settings)
    assert raw.features == FeatureColumns(*expected)
    assert len(raw) == 3
    assert (raw.label is None) == ("label" not in settings)


def test_listed_categories_keep_their_exact_text(tmp_path: Path) -> None:
    raw = read(write_csv(tmp_path), numeric=[], categorical=["zip", "age"])
    assert values(raw) == {"zip": ["007", "010", "100"], "age": ["30", "", "4.5"]}


def test_other_tables_are_read_with_the_columns_of_training(tmp_path: Path) -> None:
    path = write_csv(tmp_path, [("zip", "id", "age"), ("7", "b", "8")])
    features = FeatureColumns(numeric=("age",), categorical=("zip",))
    assert values(read(path, features)) == {"age": [8], "zip": ["7"]}
    with pytest.raises(ConfigurationError, match="has no columns 'city', 'job'; it has 'zip', 'i"):
        read(path, FeatureColumns((), ("city", "job")))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([2**63 + 1, 0], pa.uint64()), [2.0**63, 0]),
        (pa.array([0.5, math.nan], pa.float32()), [0.5, None]),
        (pa.array([Decimal("1.25"), None]), [1.25, None]),
        (pa.array(["a", None]), ["a", ""]),
        (pa.array(["7", "8"]), ["7", "8"]),
        (pa.array(["a", None]).dictionary_encode(), ["a", ""]),
        (pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        (pa.array([b"a", None]), ["a", ""]),
        (pa.array([True, None]), ["true", ""]),
        (pa.array([None, None], pa.null()), ["", ""]),
    ],
)
def test_parquet_types(tmp_path: Path, column: pa.Array, expected: list[object]) -> None:
    raw = read(write_parquet(tmp_path, id=["a", "b"], x=column))
    assert values(raw) == {"x": expected}
    kind = pa.string() if isinstance(expected[0], str) else pa.float64()
    assert raw.columns.schema.types == [kind]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([3, None]), ["3", ""]),
        (pa.array([3.0, None]), ["3", ""]),
        (pa.array([0.1, math.nan]), ["0.1", ""]),
    ],
)
def test_numbers_of_parquet_listed_as_categories(
    tmp_path: Path, column: pa.Array, expected: list[str]
) -> None:
    path = write_parquet(tmp_path, id=["a", "b"], x=column)
    assert values(read(path, categorical=["x"])) == {"x": expected}


@pytest.mark.parametrize(
    ("column", "expected"),
    [(pa.array(["7", " 8.5 "]), [7, 8.5]), (pa.array([True, None]), [1, None])],
)
def test_other_columns_of_parquet_listed_as_numbers(
    tmp_path: Path, column: pa.Array, expected: list[object]
) -> None:
    path = write_parquet(tmp_path, id=["a", "b"], x=column)
    assert values(read(path, numeric=["x"], categorical=[])) == {"x": expected}


def test_only_possible_features_of_a_parquet_file_are_read(tmp_path: Path) -> None:
    nested = [{"a": 1}]
    path = write_parquet(tmp_path, id=["a"], nested=nested, text=["t"], number=[1], other=["o"])
    assert values(read(path, categorical=["text"])) == {"number": [1], "text": ["t"]}
    assert values(read(path, numeric=["number"], categorical=[])) == {"number": [1]}


# --- numbers in text ---


def slow_numbers(texts: list[str]) -> list[float | None] | None:
    """The numbers, None where missing; None if some are not numbers, or all are missing."""
    stripped = [text.strip(" \t\n\v\f\r") for text in texts]
    try:
        found = [None if text in MISSING else float(text) for text in stripped]
    except ValueError:
        return None
    return found if any(number is not None for number in found) else None


number_texts = (
    st.integers().map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.sampled_from(["+1", " 2 ", "\t3", "1e5", "1E-5", ".5", "5.", "-0", "007"])
)
other_texts = st.sampled_from([*MISSING, " NA ", "x", "1 2", "--1", "0x1f", "1,5", "1e", "."])


@settings(deadline=None, max_examples=200)
@given(st.lists(number_texts | other_texts, min_size=1, max_size=6) | st.lists(number_texts))
def test_a_text_column_is_numeric_if_all_present_values_are_numbers(texts: list[str]) -> None:
    rows = [(f"id-{index}", text) for index, text in enumerate(["0", *texts])]
    expected = slow_numbers(["0", *texts])
    with TemporaryDirectory() as folder:
        raw = read(write_csv(Path(folder), [("id", "x"), *rows]))
    if expected is None:
        assert values(raw) == {"x": ["0", *texts]}
    else:
        assert values(raw) == {"x": expected}


def test_a_column_without_values_is_categorical(tmp_path: Path) -> None:
    raw = read(write_csv(tmp_path, [("id", "x"), ("a", ""), ("b", "NA")]))
    assert values(raw) == {"x": ["", "NA"]}


# --- errors ---


def test_ids_are_checked(tmp_path: Path) -> None:
    twice = write_csv(tmp_path, [("id", "x"), ("a", "1"), (" a", "2")])
    assert refusal(twice).startswith(
        "column 'id' (normalisation `strip`): IDs that occur more than once"
    )
    empty = write_csv(tmp_path, [("id", "x"), ("a", "1"), (" ", "2")])
    assert "missing or empty IDs: 1 of 2" in refusal(empty)
    assert refusal(write_csv(tmp_path, [("id", "x")])).startswith("has no rows")
    assert "no exact text form" in refusal(write_parquet(tmp_path, id=[1.5], x=[1]))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"label": "label"}, "has no column 'label'; it has 'id', 'age', 'city', 'zip', 'y'"),
        ({"numeric": ["Age"]}, "has no column 'Age'; did you mean 'age'? it has"),
        ({"categorical": ["Age", "z"]}, "has no columns 'Age', 'z'; did you mean 'age'? it has"),
        ({"id_column": "person"}, "has no column 'person'"),
        (
            {"numeric": ["city"]},
            "column 'city': must be numeric but contains text such as 'Rome'; write numbers",
        ),
    ],
)
def test_wrong_columns(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    assert refusal(write_csv(tmp_path), **settings).startswith(expected)


def test_repeated_and_empty_column_names(tmp_path: Path) -> None:
    twice = write_csv(tmp_path, [("id", "x", "x"), ("a", "1", "2")])
    assert refusal(twice).startswith("2 columns are named 'x'; rename all but one")
    assert values(read(twice, numeric=[], categorical=[])) == {}
    unnamed = write_csv(tmp_path, [("", "id", "x"), ("0", "a", "1")])
    assert refusal(unnamed).startswith("a column has no name; name it, or list the features")
    assert values(read(unnamed, numeric=["x"], categorical=[])) == {"x": [1]}


@pytest.mark.parametrize(
    ("column", "settings", "expected"),
    [
        (pa.array([{"a": 1}]), {}, "column 'x': has type struct<a: int64>, which cannot be a feat"),
        (pa.array([[1]]), {}, "column 'x': has type list<"),
        (pa.array([b"\xff"]), {}, "column 'x': contains values that are not UTF-8"),
        (pa.array([date(2026, 1, 1)]), {"numeric": ["x"]}, "column 'x': must be numeric but con"),
        (pa.array(["a\x1bb"]), {"numeric": ["x"]}, r"such as 'a\x1bb'; write numbers"),
    ],
)
def test_parquet_columns_that_cannot_be_features(
    tmp_path: Path, column: pa.Array, settings: dict[str, Any], expected: str
) -> None:
    path = write_parquet(tmp_path, id=["a"], x=column)
    assert expected in refusal(path, **settings)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("id,city\na,Rome\nb,Orl\u00e9ans\n".encode("latin-1"))
    assert refusal(path).startswith("row 3 (the header is row 1) is not UTF-8; save the file")
    assert list(read_ids(path, "id", "strip")) == [b"a", b"b"]


def test_from_memory() -> None:
    table = pa.table({"n": [1, None], "c": ["x", None]})
    raw = RawTable.from_arrow("here", pa.array(["a", "b"]), table, pa.array([0, 1]))
    assert list(raw.ids) == [b"a", b"b"]
    assert values(raw) == {"n": [1, None], "c": ["x", ""]}
    assert raw.label is not None
    assert raw.label.to_pylist() == [0, 1]
