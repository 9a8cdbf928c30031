"""Compressed tables that expand to far more than their size are refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data import table_errors
from tests.support.tables import read_ids

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 20_000


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB in place of a GiB are always allowed."""
    monkeypatch.setattr(table_errors, "FREE_EXPANSION", 1 << 16)


def csv_bytes(filler: str) -> bytes:
    return ("id,note\n" + "".join(f"{row},{filler}\n" for row in range(ROWS))).encode()


def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_ids(path, "id", "strip")
    text = str(caught.value)
    assert text.startswith(f"{path}: expands to more than")
    return text


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(csv_bytes("x" * 2000)))
    assert refusal(path).endswith("decompress it, and specify the decompressed one")


def test_a_gzip_bomb_of_empty_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(b"id\na\n" + b"\n" * 50_000_000))
    refusal(path)


def test_a_parquet_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    table = pa.table({"id": list(range(1000)), "note": ["x" * 20_000] * 1000})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    assert refusal(path).endswith("write it again without compression")


def varint(number: int) -> bytes:
    """Encode a number as in the footer of a Parquet file: a zigzag varint."""
    number *= 2
    parts = []
    while number >= 128:
        parts.append(number % 128 + 128)
        number //= 128
    return bytes([*parts, number])


def test_a_parquet_file_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    table = pa.table({"id": [f"{row:05}" + "x" * 20_000 for row in range(1000)]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    content = path.read_bytes()
    metadata = parquet.read_metadata(path)
    for size in {
        metadata.row_group(0).total_byte_size,
        metadata.row_group(0).column(0).total_uncompressed_size,
    }:
        true = varint(size)
        small = bytes([0x80 | 20, *[0x80] * (len(true) - 2), 0])  # 10, in as many bytes
        assert true in content
        content = content.replace(true, small)
    path.write_bytes(content)
    assert parquet.read_metadata(path).row_group(0).total_byte_size == 10
    assert refusal(path).endswith("write it again without compression")


def test_a_dictionary_that_expands_is_refused(tmp_path: Path) -> None:
    """Its pages are small; only the values are large."""
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"id": ["x" * 10_000] * 20_000}), path)
    assert parquet.read_metadata(path).row_group(0).total_byte_size < 1 << 16
    refusal(path)


def test_ordinary_compression_is_accepted(tmp_path: Path) -> None:
    text = tmp_path / "people.csv.gz"
    text.write_bytes(gzip.compress(csv_bytes("a note")))
    assert len(read_ids(text, "id", "strip")) == ROWS
    columns = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"id": list(range(ROWS)), "note": ["a note"] * ROWS}), columns)
    assert len(read_ids(columns, "id", "strip")) == ROWS
