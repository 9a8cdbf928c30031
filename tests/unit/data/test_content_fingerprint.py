"""Fingerprints of features depend on values and order only, not on how a table is read."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from florist.common.data import table_reader
from florist.common.data.content_fingerprint import ContentFingerprint, array_fingerprint
from florist.common.data.feature_store import FeatureStore
from florist.common.data.raw_table import RawTable
from florist.common.data.scan_table import scan_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.storage.files import FolderStorage
from florist.experiments.click_data import write_table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

IDS = pa.array([f"p{number}" for number in range(7)])
AGES = [3.0, None, 5.5, 0.0, -1.0, 7.0, 8.0]
CITIES = ["Bern", "", "Graz", "Bern", "B", "ernGraz", ""]


def parts(
    *cuts: int, ages: list[float | None] = AGES, cities: list[str] = CITIES
) -> list[RawTable]:
    """The table in several parts."""
    table = pa.table({"age": pa.array(ages, pa.float64()), "city": pa.array(cities)})
    bounds = [0, *cuts, len(cities)]
    return [
        RawTable.from_arrow("table", IDS[a:b], table.slice(a, b - a))
        for a, b in itertools.pairwise(bounds)
    ]


def fingerprints(read: list[RawTable]) -> dict[str, str]:
    collected = ContentFingerprint()
    for part in read:
        collected.add(part)
    return collected.finish(["age", "city"])


def test_the_parts_make_no_difference() -> None:
    whole = fingerprints(parts())
    for cuts in [(1,), (3,), (1, 2, 3), (2, 6)]:
        assert fingerprints(parts(*cuts)) == whole


def test_each_change_is_found_in_its_column() -> None:
    whole = fingerprints(parts())
    for ages in ([3.0, 0.0, *AGES[2:]], AGES[::-1], [3.0000001, *AGES[1:]]):
        found = fingerprints(parts(ages=ages))
        assert found["age"] != whole["age"]
        assert found["city"] == whole["city"]
    for cities in (CITIES[::-1], ["Ber", "n", *CITIES[2:]], ["bern", *CITIES[1:]]):
        found = fingerprints(parts(cities=cities))
        assert found["city"] != whole["city"]
        assert found["age"] == whole["age"]


def test_numbers_have_an_order() -> None:
    assert array_fingerprint(np.array([1, 2])) != array_fingerprint(np.array([2, 1]))
    assert array_fingerprint(np.array([1, 2])) == array_fingerprint(np.array([1, 2]))


def test_a_scan_is_the_same_for_every_format_and_way_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last value of `code` is text, which a CSV file shows only at its end."""
    code = ["1", "2", "3", "4", "5", "6", "x"]
    ages = [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    table = pa.table({"id": IDS, "age": pa.array(ages), "code": code})
    found = []
    for name, rows in (("t.csv", 1 << 17), ("t.csv", 2), ("t.parquet", 3)):
        write_table(table, tmp_path / name)
        monkeypatch.setattr(table_reader, "_MAX_ROWS", rows)
        settings = Table(path=tmp_path / name, id_column="id")
        store = FeatureStore(1 << 20, FolderStorage(tmp_path / "work"))
        scan = scan_table(settings, "none", PreprocessingSettings(), store)
        again = scan_table(
            settings, "none", PreprocessingSettings(), store, known=scan.preprocessing
        )
        found += [scan.features, again.features]
    assert all(each == found[0] for each in found)
    assert list(found[0]) == ["age", "code"]
