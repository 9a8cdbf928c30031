"""Dates and texts for missing values: the same in every table, in parts, and in a served row."""

from __future__ import annotations

import csv
import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from florist.common.core.errors import ConfigurationError
from florist.common.data import table_reader
from florist.common.data.column_values import ValueRules, as_dates
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.preprocessing import Preprocessing
from florist.common.data.raw_table import convert_features
from florist.common.data.scan_table import scan_table
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.storage.files import FolderStorage
from florist.passive_party.row_encoder import BadRow, RowEncoder

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.data.scan_table import TableScan

ROWS = 300
NA_VALUES = ["?", "-999"]


def people(seed: int = 0) -> list[dict[str, Any]]:
    """Return rows as a user may write them; None is a missing value, written in different ways."""
    draw = random.Random(seed)
    rows = []
    for number in range(ROWS):
        when = datetime(2020, 2, 28, 23, 30, tzinfo=UTC) + timedelta(hours=draw.randrange(40_000))
        rows.append(
            {
                "id": f"p{number}",
                "age": draw.choice([None, draw.randrange(18, 90)]),
                "city": draw.choice([None, "Rome", "Bern", "Genève"]),
                "joined": draw.choice([None, when]),
            }
        )
    return rows


def write_csv(path: Path, rows: list[dict[str, Any]], date_format: str = "%Y-%m-%d %H:%M") -> Path:
    draw = random.Random(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        for row in rows:
            joined, missing = row["joined"], draw.choice(["?", " ?", ""])
            writer.writerow(
                [
                    row["id"],
                    draw.choice(["-999", "?", "NA", "-999.0"])
                    if row["age"] is None
                    else row["age"],
                    row["city"] or missing,
                    missing if joined is None else joined.strftime(date_format),
                ]
            )
    return path


def table_at(path: Path, **settings: Any) -> Table:  # noqa: ANN401
    return Table(path=path, id_column="id", **{"na_values": NA_VALUES, **settings})


def scan(path: Path, memory: int = 1 << 30, **settings: Any) -> TableScan:  # noqa: ANN401
    store = FeatureStore(memory, FolderStorage(path.parent))
    return scan_table(table_at(path, **settings), "none", PreprocessingSettings(), store)


def slow_parts(when: datetime | None) -> list[float | None]:
    if when is None:
        return [None, None, None]
    since = when - datetime(2000, 1, 1, tzinfo=UTC)
    return [since.total_seconds() / 86_400, when.month, when.isoweekday()]


def test_dates_and_missing_values_match_the_slow_version(tmp_path: Path) -> None:
    rows = people()
    table = table_at(write_csv(tmp_path / "people.csv", rows), dates=["joined"])
    raw = read_whole_table(table, "none")
    assert raw.columns.column("age").to_pylist() == [row["age"] for row in rows]
    assert raw.columns.column("city").to_pylist() == [row["city"] or "" for row in rows]
    parts = [
        raw.columns.column(f"joined ({part})").to_pylist() for part in ("day", "month", "weekday")
    ]
    assert [list(each) for each in zip(*parts, strict=True)] == [
        slow_parts(row["joined"]) for row in rows
    ]


def test_every_way_to_read_a_row_encodes_it_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = people()
    text = write_csv(tmp_path / "people.csv", rows)
    whole = scan(text, dates=["joined"])
    expected = encode_in_memory(whole)
    assert whole.preprocessing.features.names == ("age", "city", "joined")
    assert expected.numeric.shape == (ROWS, 4)

    whole.preprocessing.save(tmp_path / "saved")
    loaded = Preprocessing.load(tmp_path / "saved")
    assert loaded.features == whole.preprocessing.features

    # Parquet with real types and nulls; its dates are found without being listed.
    kinds = {"age": pa.int64(), "city": pa.string(), "joined": pa.timestamp("us", "UTC")}
    typed = pa.table(
        {
            "id": [row["id"] for row in rows],
            **{name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()},
        }
    )
    parquet.write_table(typed, tmp_path / "people.parquet")
    found = scan(tmp_path / "people.parquet")
    assert found.preprocessing.features.dates == ("joined",)
    columns = convert_features("rows", typed, loaded.features)
    # Text, as `florist predict` reads a file.
    with text.open(encoding="utf-8") as file:
        texts = pa.Table.from_pylist(list(csv.DictReader(file)))
    served = [{key: row[key] for key in ("age", "city")} for row in rows]
    for row, source in zip(served, rows, strict=True):
        row["joined"] = None if source["joined"] is None else source["joined"].isoformat()
    monkeypatch.setattr(table_reader, "_VALUES", 40)
    in_parts = scan(text, memory=0, dates=["joined"])
    for encoded in (
        encode_in_memory(found),
        encode_in_memory(in_parts),
        loaded.transform(columns),
        loaded.transform(convert_features("rows", texts, loaded.features)),
        RowEncoder(loaded)(served),
    ):
        np.testing.assert_allclose(encoded.numeric, expected.numeric, atol=1e-6)
        np.testing.assert_array_equal(encoded.categories, expected.categories)


def test_served_rows_may_use_the_texts_for_missing_values(tmp_path: Path) -> None:
    fitted = scan(write_csv(tmp_path / "people.csv", people()), dates=["joined"]).preprocessing
    encode = RowEncoder(fitted)
    missing = encode([{"age": None, "city": None, "joined": None}])
    for age, city, joined in (("?", "?", "?"), (-999, " ?", ""), (-999.0, "", "NA")):
        row = encode([{"age": age, "city": city, "joined": joined}])
        np.testing.assert_array_equal(row.numeric, missing.numeric)
        np.testing.assert_array_equal(row.categories, missing.categories)
    day = encode([{"age": 1, "city": "Rome", "joined": date(2022, 5, 1)}])
    text = encode([{"age": 1, "city": "Rome", "joined": "2022-05-01"}])
    np.testing.assert_array_equal(day.numeric, text.numeric)
    for wrong in ("1.5.2022", 7, "\ud800"):
        with pytest.raises(BadRow, match="column 'joined': must be"):
            encode([{"age": 1, "city": "Rome", "joined": wrong}])


def test_dates_in_other_formats(tmp_path: Path) -> None:
    pattern = "%d.%m.%Y"
    text = write_csv(tmp_path / "people.csv", people(), pattern)
    found = scan(text, dates=["joined"], date_format=pattern)
    days = [row["joined"] and row["joined"].replace(hour=0, minute=0) for row in people()]
    encode = RowEncoder(found.preprocessing)
    rows = [
        {**{key: row[key] for key in ("age", "city")}, "joined": day and day.strftime(pattern)}
        for row, day in zip(people(), days, strict=True)
    ]
    np.testing.assert_allclose(encode(rows).numeric, encode_in_memory(found).numeric, atol=1e-6)
    with pytest.raises(ConfigurationError, match=r"column 'joined': must be dates but contains"):
        scan(text, dates=["joined"])


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("2000-01-02", 1.0),
        ("2000-01-02 12:00", 1.5),
        ("2000-01-02T06:00:00Z", 1.25),
        ("2000-01-02T06:00:00+06:00", 1.0),
        (" 1999-12-31 ", -1.0),
    ],
)
def test_iso_dates(text: str, days: float) -> None:
    found = as_dates(pa.chunked_array([[text]]), "here")[0].as_py()
    assert (found - datetime(2000, 1, 1)) / timedelta(days=1) == days  # noqa: DTZ001


@pytest.mark.parametrize(
    ("column", "example"),
    [
        (pa.array(["2024-03-01", "soon"]), "text such as 'soon'"),
        (pa.array(["2024-13-01"]), "text such as '2024-13-01'"),
        (pa.array([20240301]), "int64 values"),
    ],
)
def test_values_that_are_not_dates(column: pa.Array, example: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^here: must be dates but contains {example}; "):
        as_dates(pa.chunked_array([column]), "here")


def test_numbers_of_days_with_a_pattern() -> None:
    rules = ValueRules(date_format="%Y%m%d")
    assert as_dates(pa.chunked_array([[20240301]]), "here", rules)[0].as_py() == datetime(  # noqa: DTZ001
        2024, 3, 1
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"na_values": "?"}, "must be a list of texts"),
        ({"na_values": [True]}, "put it in quotes"),
        ({"na_values": [None]}, "must list texts, not None"),
        ({"positive_label": True}, 'put it in quotes, such as "yes"'),
        ({"date_format": "dd.mm.yyyy"}, "must be `iso` or a pattern such as %d.%m.%Y"),
        ({"dates": ["a"], "numeric": ["a"]}, "'a' is also listed under numeric; keep one"),
        ({"dates": ["a"], "categorical": ["a"]}, "'a' is also listed under categorical; keep one"),
        ({"dates": ["id"]}, "'id' is the ID or label column; remove it"),
    ],
)
def test_wrong_settings(tmp_path: Path, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Table(path=tmp_path / "x.csv", id_column="id", **settings)
    assert problem in str(caught.value)


def test_numbers_are_accepted_as_texts(tmp_path: Path) -> None:
    table = table_at(tmp_path, na_values=[-999, 9.5], positive_label=2)
    assert table.na_values == ("-999", "9.5")
    assert table.positive_label == "2"


def test_a_part_of_a_date_must_not_have_the_name_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("id,joined,joined (day)\na,2024-01-01,5\n")
    with pytest.raises(ConfigurationError, match="has the name of another column; rename one"):
        scan(path, dates=["joined"])
