"""Which encoded features belong to a column."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.common.data.encoded_columns import EncodedColumn, encoded_columns
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.scan_table import scan_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.storage.files import FolderStorage

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.data.scan_table import TableScan

ROWS = 40


def scanned(folder: Path, bins: int) -> TableScan:
    random = np.random.default_rng(0)
    since = [dt.date(2020, 1, 1) + dt.timedelta(days=31 * row) for row in range(ROWS)]
    table = pa.table(
        {
            "id": pa.array([f"p{row}" for row in range(ROWS)]),
            "income": random.normal(size=ROWS),
            "town": pa.array([f"t{row % 3}" for row in range(ROWS)]),
            "age": random.normal(size=ROWS),
            "since": pa.array(since),
        }
    )
    path = folder / "people.parquet"
    parquet.write_table(table, path)
    settings = PreprocessingSettings(min_count=1, bins=bins)
    store = FeatureStore(1 << 30, FolderStorage(folder))
    return scan_table(Table(path=path, id_column="id"), "none", settings, store)


@pytest.mark.parametrize("bins", [0, 4])
def test_exchanging_a_column_changes_all_of_it_and_nothing_else(tmp_path: Path, bins: int) -> None:
    scan = scanned(tmp_path, bins)
    features = encode_in_memory(scan)
    columns = encoded_columns(scan.preprocessing)
    assert {column.name for column in columns} == {"income", "town", "age", "since"}
    places = [place for column in columns for place in column.numeric]
    assert sorted(places) == list(range(features.numeric.shape[1]))
    indices = [place for column in columns for place in column.categories]
    assert sorted(indices) == list(range(features.categories.shape[1]))
    order = np.random.default_rng(1).permutation(ROWS)
    whole = features.take(order)
    for column in columns:
        changed = column.permuted(features, order)
        for place in range(features.numeric.shape[1]):
            expected = whole if place in column.numeric else features
            np.testing.assert_array_equal(changed.numeric[:, place], expected.numeric[:, place])
        for place in range(features.categories.shape[1]):
            expected = whole if place in column.categories else features
            np.testing.assert_array_equal(
                changed.categories[:, place], expected.categories[:, place]
            )


def test_a_date_is_one_column(tmp_path: Path) -> None:
    columns = encoded_columns(scanned(tmp_path, bins=4).preprocessing)
    (since,) = (column for column in columns if column.name == "since")
    assert (len(since.numeric), len(since.categories)) == (3, 3)
    assert EncodedColumn("town", (), (0,)) in columns
