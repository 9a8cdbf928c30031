"""Files in the format of Kaggle's Criteo and Avazu data, read with their path only."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.common.core.errors import ConfigurationError
from florist.common.data.labels import read_labels
from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.raw_table import FeatureColumns, RawTable
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.settings.formats import AVAZU, CRITEO
from tests.support.tables import read_table_ids

if TYPE_CHECKING:
    from pathlib import Path

AVAZU_HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
    "device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)


def criteo_lines(rows: int) -> list[list[str]]:
    random = np.random.default_rng(0)
    return [
        [
            str(row % 2),
            *("" if random.random() < 0.3 else str(random.integers(-2, 5000)) for _ in range(13)),
            *("" if random.random() < 0.2 else f"{random.integers(9):08x}" for _ in range(26)),
        ]
        for row in range(rows)
    ]


def avazu_lines(rows: int) -> list[list[str]]:
    random = np.random.default_rng(0)
    return [
        [
            str(10**18 + row),
            str(row % 2),
            "14102100",
            *(f"{random.integers(9):x}" for _ in range(21)),
        ]
        for row in range(rows)
    ]


def write(path: Path, lines: list[list[str]], delimiter: str, header: str | None = None) -> Path:
    text = "".join(f"{delimiter.join(line)}\n" for line in lines)
    content = (f"{header}\n{text}" if header else text).encode()
    path.write_bytes(gzip.compress(content) if path.suffix.lower() == ".gz" else content)
    return path


def ids(path: Path, **settings: Any) -> list[bytes]:  # noqa: ANN401
    return list(read_table_ids(Table(path=path, **settings), "strip"))


def read(path: Path, **settings: Any) -> RawTable:  # noqa: ANN401
    return read_whole_table(Table(path=path, **settings), "strip")


def refusal(path: Path, **settings: Any) -> str:  # noqa: ANN401
    with pytest.raises(ConfigurationError) as caught:
        read(path, **settings)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["train.txt", "train.tsv", "train.txt.gz", "TRAIN.TSV.GZ"])
def test_criteo(tmp_path: Path, name: str) -> None:
    lines = criteo_lines(20)
    raw = read(write(tmp_path / name, lines, "\t"), format="criteo")
    assert list(raw.ids) == [str(row).encode() for row in range(1, 21)]
    assert raw.features == FeatureColumns(CRITEO.numeric, CRITEO.categorical)
    assert read_labels(raw).classes.tolist() == [int(line[0]) for line in lines]
    for index, column in enumerate(CRITEO.numeric, 1):
        expected = [float(line[index]) if line[index] else None for line in lines]
        assert raw.columns.column(column).to_pylist() == expected
    for index, column in enumerate(CRITEO.categorical, 14):
        assert raw.columns.column(column).to_pylist() == [line[index] for line in lines]
    features = fit_preprocessing(raw, PreprocessingSettings(scaling="log")).transform(raw)
    assert features.numeric.shape == (20, 13)
    assert features.categories.shape == (20, 26 + 13)  # a bin of each number


def test_criteo_with_a_leading_id_column(tmp_path: Path) -> None:
    lines = [[f"user {row}", *line] for row, line in enumerate(criteo_lines(5))]
    path = write(tmp_path / "train.txt", lines, "\t")
    raw = read(path, format="criteo", id_column="user")
    assert list(raw.ids) == [b"user %d" % row for row in range(5)]
    assert ids(path, format="criteo", id_column="user") == list(raw.ids)
    assert read_labels(raw).classes.tolist() == [0, 1, 0, 1, 0]
    assert refusal(path, format="criteo") == (
        "row 1 has 41 values but the format has 40, from 'label' to 'C26'; `id_column` "
        "determines whether the first column is an ID"
    )
    plain = write(tmp_path / "plain.txt", criteo_lines(5), "\t")
    assert refusal(plain, format="criteo", id_column="user").startswith(
        "row 1 has 40 values but the format has 41, from 'user' to 'C26'"
    )


def test_avazu(tmp_path: Path) -> None:
    lines = avazu_lines(20)
    for name in ("train.csv", "train.gz"):
        raw = read(write(tmp_path / name, lines, ",", AVAZU_HEADER), format="avazu")
        assert [each.decode() for each in raw.ids] == [line[0] for line in lines]
        assert raw.features == FeatureColumns((), AVAZU.categorical)
        assert [AVAZU.id_column, AVAZU.label, *AVAZU.categorical] == AVAZU_HEADER.split(",")
        assert read_labels(raw).classes.tolist() == [int(line[1]) for line in lines]
        for index, column in enumerate(AVAZU.categorical, 2):
            assert raw.columns.column(column).to_pylist() == [line[index] for line in lines]


def test_ids_only(tmp_path: Path) -> None:
    criteo = write(tmp_path / "train.txt", criteo_lines(3), "\t")
    assert ids(criteo, format="criteo") == [b"1", b"2", b"3"]
    avazu = write(tmp_path / "train.csv", avazu_lines(2), ",", AVAZU_HEADER)
    expected = [b"1000000000000000000", b"1000000000000000001"]
    assert ids(avazu, format="avazu") == expected
    assert ids(avazu, id_column="id") == expected


def test_some_columns_of_a_format(tmp_path: Path) -> None:
    path = write(tmp_path / "train.txt", criteo_lines(3), "\t")
    some = read(path, format="criteo", numeric=["I2"], categorical=["C3", "C1"])
    assert some.features == FeatureColumns(("I2",), ("C3", "C1"))
    none = read(path, format="criteo", numeric=[], categorical=[])
    assert none.features == FeatureColumns((), ())
    assert len(none) == 3
    assert read_labels(none).classes.tolist() == [0, 1, 0]


def test_criteo_as_parquet(tmp_path: Path) -> None:
    names = (CRITEO.label, *CRITEO.numeric, *CRITEO.categorical)
    columns = list(zip(*criteo_lines(4), strict=True))
    path = tmp_path / "train.parquet"
    parquet.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
    raw = read(path, format="criteo")
    assert list(raw.ids) == [b"1", b"2", b"3", b"4"]
    assert raw.features == FeatureColumns(CRITEO.numeric, CRITEO.categorical)


def test_files_in_another_format(tmp_path: Path) -> None:
    comma = write(tmp_path / "train.txt", criteo_lines(3), ",")
    assert refusal(comma, format="criteo").startswith("row 1 has 1 values but the format has 40")
    criteo = write(tmp_path / "train.csv", criteo_lines(3), "\t")
    assert refusal(criteo, format="avazu").startswith("has no columns 'id', 'click', 'hour'")
    short = [*criteo_lines(3), criteo_lines(1)[0][:-1]]
    path = write(tmp_path / "short.txt", short, "\t")
    assert refusal(path, format="criteo").startswith("row 4 has 39 values but the format has 40")


def test_a_plain_column_may_be_named_row_number(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", [["b", "1"], ["a", "2"]], ",", "row_number,x")
    assert list(read(path, id_column="row_number").ids) == [b"b", b"a"]
