"""Reading the files of a table in parts."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data import text_files
from florist.common.data.table_files import open_table_files
from florist.common.data.text_files import TextLayout

if TYPE_CHECKING:
    import io
    from pathlib import Path

ROWS = 1000
TABLE = pa.table(
    {
        "id": [f"person {n}" for n in range(ROWS)],
        "number": [str(n / 7) for n in range(ROWS)],
        "text": [f'a "quoted", value\n{n}' for n in range(ROWS)],
    }
)


@pytest.fixture(params=["rows.csv", "rows.csv.gz", "rows.parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with several blocks or row groups."""
    monkeypatch.setattr(text_files, "_read_options", small_blocks)
    target: Path = tmp_path / request.param
    if target.suffix == ".parquet":
        parquet.write_table(TABLE, target, row_group_size=130)
        return target
    plain = tmp_path / "plain.csv"
    csv.write_csv(TABLE, plain)
    content = plain.read_bytes()
    target.write_bytes(gzip.compress(content) if target.suffix == ".gz" else content)
    return target


def small_blocks(layout: TextLayout, *, use_threads: bool = True) -> csv.ReadOptions:
    return csv.ReadOptions(use_threads=use_threads, block_size=5000, column_names=layout.names)


@pytest.mark.parametrize("rows", [1, 77, 500, 5000])
@pytest.mark.parametrize("skip", [0, 1, 130, 999])
def test_all_rows_in_order_in_tables_of_equal_size(path: Path, rows: int, skip: int) -> None:
    file = open_table_files(path, TextLayout())
    tables, fractions = zip(*file.batches(["text", "id"], rows, skip), strict=True)
    assert [table.num_rows for table in tables[:-1]] == [rows] * (len(tables) - 1)
    whole = pa.concat_tables(tables).combine_chunks()
    assert whole.equals(TABLE.select(["text", "id"]).slice(skip).combine_chunks())
    assert list(fractions) == sorted(fractions)
    assert 0 < fractions[0] <= fractions[-1] == 1


def test_skipping_all_rows_yields_nothing(path: Path) -> None:
    assert list(open_table_files(path, TextLayout()).batches(["id"], 100, ROWS)) == []


def test_a_missing_column(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has no column 'ids'; did you mean 'id'"):
        open_table_files(path, TextLayout()).batches(["ids"], 100)


def test_a_malformed_row_far_down_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 3_000_000 + "1,2,3\n")
    with pytest.raises(ConfigurationError, match="3 values but the header has 2"):
        list(open_table_files(path, TextLayout()).batches(["a"], 1 << 20))


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(TABLE, path, row_group_size=100)
    content = bytearray(path.read_bytes())
    content[300:900] = bytes(600)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"rows\.parquet: cannot be read"):
        list(open_table_files(path, TextLayout()).batches(["id", "text"], 100))


def test_a_file_that_is_closed_early_is_not_read_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow prefetches in threads: it must not read from a descriptor that another file reuses."""
    path = tmp_path / "rows.csv"
    csv.write_csv(TABLE, path)
    opened: list[io.FileIO] = []
    unwatched = type(path).open

    def watched(self: Path, *how: Any, **more: Any) -> Any:  # noqa: ANN401 - as `Path.open`
        opened.append(unwatched(self, *how, **more))
        return opened[-1]

    monkeypatch.setattr(type(path), "open", watched)
    file = open_table_files(path, TextLayout())
    next(file.batches(["id"], 10))
    assert len(opened) >= 2
    for each in opened:
        with pytest.raises(ValueError, match="closed file"):
            each.read(1)
