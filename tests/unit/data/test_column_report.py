"""The report on the columns of a table: statistics, kinds, warnings and the format of IDs."""

from __future__ import annotations

import csv
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.common.data import column_report, column_statistics
from florist.common.data.column_report import inspect_table
from florist.common.data.distinct_count import STANDARD_ERROR, DistinctCount
from florist.common.data.table_reader import TableReader
from florist.common.settings.data import PreprocessingSettings, Table

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.data.column_report import ColumnReport, TableReport

ROWS = 200


def columns() -> dict[str, list[str]]:
    draw = random.Random(3)
    return {
        "id": [f"00{number:05}" for number in range(ROWS)],
        "y": [draw.choice("01") for _ in range(ROWS)],
        "age": [draw.choice(["", "NA", "41", "30.5", "7"]) for _ in range(ROWS)],
        "city": [draw.choice(["Rome", " Rome", "Bern"]) for _ in range(ROWS)],
        "same": ["x"] * ROWS,
        "name": [f"person {number}" for number in range(ROWS)],
        "joined": [f"2024-{1 + number % 12:02}-01" for number in range(ROWS)],
        "left": [f"{1 + number % 28}.3.2024" for number in range(ROWS)],
        "income": [draw.choice(["?", "n/k"]) if n % 50 == 0 else str(n) for n in range(ROWS)],
        "rare": ["5" if number < 3 else "" for number in range(ROWS)],
    }


def write_csv(folder: Path, content: dict[str, list[str]]) -> Path:
    path = folder / "people.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(content)
        writer.writerows(zip(*content.values(), strict=True))
    return path


def inspect(path: Path, max_rows: int | None = None, **settings: Any) -> TableReport:  # noqa: ANN401
    table = Table(path=path, **{"id_column": "id", "label": "y", **settings})
    return inspect_table(table, "strip", PreprocessingSettings(), max_rows=max_rows)


def by_name(report: TableReport) -> dict[str, ColumnReport]:
    return {column.name: column for column in report.columns}


def texts(column: ColumnReport) -> str:
    return " | ".join(f"{warning.text}: {warning.values}" for warning in column.warnings)


@pytest.mark.parametrize("values_per_part", [1 << 20, 100])
def test_statistics_match_the_slow_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values_per_part: int
) -> None:
    monkeypatch.setattr(column_report, "_VALUES", values_per_part)
    content = columns()
    report = inspect(write_csv(tmp_path, content))
    assert report.rows == ROWS
    assert report.is_complete
    found = by_name(report)
    assert list(found) == ["y", *list(content)[2:]]
    for name, column in found.items():
        gone = {"", "NA"} if column.kind == "numeric" else {""}
        present = [text.strip() for text in content[name] if text.strip() not in gone]
        assert column.missing == pytest.approx(1 - len(present) / ROWS)
        assert column.is_exact
        if column.kind != "numeric":
            assert column.distinct == len(set(present))
    assert found["age"].contents == "7 to 41"
    share = sum(text.strip() == "Rome" for text in content["city"]) / ROWS
    assert found["city"].contents.startswith(f"'Rome' {share:.0%}, 'Bern' ")


_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"numeric": ["age"]},
    {"categorical": ["city"]},
    {"dates": ["joined"], "na_values": ["?", "n/k"]},
    {"numeric": ["age"], "categorical": []},
)


def test_kinds_are_those_of_training(tmp_path: Path) -> None:
    path = write_csv(tmp_path, columns())
    for settings in _SETTINGS:
        reader = TableReader(Table(path=path, id_column="id", label="y", **settings))
        for _ in reader.first_pass():
            pass
        features = reader.features
        found = by_name(inspect(path, **settings))
        for kind, names in (
            ("numeric", features.numeric),
            ("categorical", features.categorical),
            ("date", features.dates),
        ):
            assert {name for name, each in found.items() if each.kind == kind} == set(names)


def test_warnings(tmp_path: Path) -> None:
    found = by_name(inspect(write_csv(tmp_path, columns())))
    assert {name for name, column in found.items() if column.warnings} == {
        *("same", "name", "joined", "left", "income", "rare")
    }
    assert texts(found["same"]).startswith("the same value in every row; it tells the model")
    assert texts(found["name"]).startswith("nearly every row has a text of its own")
    assert texts(found["joined"]) == "dates that are read as categories; list it under `dates`: "
    assert '`date_format`: "%d.%m.%Y"' in texts(found["left"])
    assert texts(found["income"]).startswith("numbers, except that 4 rows have text")
    assert "'?' (" in texts(found["income"]) or "'n/k' (" in texts(found["income"])
    # The text without values is what preflight may print.
    assert "?" not in found["income"].warnings[0].text
    assert texts(found["rare"]).startswith("98.5% of the values are missing")


def test_following_the_advice_ends_the_warnings(tmp_path: Path) -> None:
    path = write_csv(tmp_path, columns())
    found = by_name(inspect(path, dates=["joined"], na_values=["?", "n/k"]))
    assert found["joined"].kind == "date"
    assert found["joined"].contents == "2024-01-01 to 2024-12-01"
    assert found["income"].kind == "numeric"
    assert not found["joined"].warnings
    assert not found["income"].warnings
    refused = by_name(inspect(path, numeric=["income"], categorical=[]))["income"]
    assert texts(refused).startswith("listed under `numeric`, but 4 rows have text, so training")


def test_a_label_is_shown_with_its_values(tmp_path: Path) -> None:
    label = by_name(inspect(write_csv(tmp_path, columns())))["y"]
    assert (label.kind, label.distinct, label.encoding) == ("label", 2, "class")


def test_parquet_types(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    table = pa.table(
        {
            "id": pa.array([5, 6, 7]),
            "y": [True, False, True],
            "x": [1.5, None, float("nan")],
            "day": pa.array([19_000, None, 19_001], pa.date32()),
            "word": pa.array(["a", None, "a"]).dictionary_encode(),
            "list": [[1], [2], [3]],
        }
    )
    parquet.write_table(table, path)
    found = by_name(inspect(path))
    assert [(each.kind, round(each.missing, 2)) for each in found.values()][:4] == [
        ("label", 0.0),
        ("numeric", 0.67),
        ("date", 0.33),
        ("categorical", 0.33),
    ]
    assert found["day"].contents == "2022-01-08 to 2022-01-09"
    assert found["x"].contents == "1.5 to 1.5"
    assert found["list"].warnings[0].text.startswith("has type list")


def test_large_tables_are_estimated_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_statistics, "MAX_EXACT", 50)
    monkeypatch.setattr(column_report, "_VALUES", 400)
    report = inspect(write_csv(tmp_path, columns()))
    name = by_name(report)["name"]
    assert not name.is_exact
    assert abs(name.distinct - ROWS) < 5 * STANDARD_ERROR * ROWS + 1
    first = inspect(tmp_path / "people.csv", max_rows=80)
    assert not first.is_complete
    assert first.rows == 80


@pytest.mark.parametrize("count", [10, 5_000, 300_000])
def test_the_estimate_of_distinct_values(count: int) -> None:
    estimate = DistinctCount()
    for start in range(0, count, 50_000):
        part = [f"value {number}" for number in range(start, min(start + 50_000, count))]
        estimate.add(pa.array(part * 2, pa.large_string()))
    assert abs(estimate.estimate() - count) <= 4 * STANDARD_ERROR * count + 1


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (
            ["007", "123"],
            "3 characters; 50% start with 0; no letters; 100% digits only; patterns: 9 (100%)",
        ),
        (
            ["A-1", "A-12", "b1"],
            "2 to 4 characters; 0% start with 0; upper and lower case; 0% digits only; pattern",
        ),
        (
            [" x@y.org ", "z@y.org"],
            "7 characters; 0% start with 0; lower case; 0% digits only; patterns: a@a.a (100%)",
        ),
    ],
)
def test_the_format_of_ids_quotes_none(tmp_path: Path, ids: list[str], expected: str) -> None:
    path = write_csv(tmp_path, {"id": ids, "x": ["1"] * len(ids)})
    report = inspect(path, label=None)
    assert report.ids is not None
    assert report.ids.describe().startswith(expected)


def test_ids_of_too_many_forms_have_no_pattern(tmp_path: Path) -> None:
    draw = random.Random(0)
    ids = ["".join(draw.choices("0123456789abcdef", k=32)) for _ in range(500)]
    report = inspect(write_csv(tmp_path, {"id": ids, "x": ["1"] * 500}), label=None)
    assert report.ids is not None
    assert report.ids.describe().endswith("patterns: too many different ones")
