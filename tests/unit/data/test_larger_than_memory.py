"""A table several times larger than the memory limit can be encoded and used."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from florist.common.data.features import encoded_bytes

if TYPE_CHECKING:
    from pathlib import Path

GROUPS, GROUP_ROWS, NUMBERS, CATEGORIES = 15, 100_000, 96, 4
#: Bytes in addition to what the program uses at its start.
ALLOWANCE = 300_000_000

#: Prints the bytes of private memory at its start and at most. Pages of files, which the system can
#: reclaim, are not included.
CHILD = """
import sys, threading
from pathlib import Path
import numpy as np
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.scan_table import scan_table
from florist.common.storage.files import FolderStorage

def own_bytes():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])

def record():
    while not finished.wait(0.005):
        seen.append(own_bytes())

folder, memory, where = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
seen, finished = [own_bytes()], threading.Event()
recorder = threading.Thread(target=record)
recorder.start()
try:
    table = Table(path=folder / "people.parquet", id_column="id")
    store = FeatureStore(memory, FolderStorage(folder / "work"))
    scan = scan_table(table, "none", PreprocessingSettings(), store)
    if where == "store":
        features = store.add(scan)
    else:
        features = encode_in_memory(scan)
    random = np.random.default_rng(0)
    for _ in range(50):
        features.take(random.integers(0, len(features), 8192))
finally:
    finished.set()
    recorder.join()
print(len(features), seen[0], max(seen))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 600 MB once encoded."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(0)
    columns = {f"n{n}": random.random(GROUP_ROWS, dtype=np.float32) for n in range(NUMBERS)}
    columns |= {f"c{n}": random.integers(0, 50, GROUP_ROWS).astype(str) for n in range(CATEGORIES)}
    group = pa.table(columns)
    schema = pa.schema([pa.field("id", pa.int64()), *group.schema])
    encoding = {"compression": "none", "use_dictionary": [f"c{n}" for n in range(CATEGORIES)]}
    with parquet.ParquetWriter(folder / "people.parquet", schema, **encoding) as writer:
        for n in range(GROUPS):
            ids = np.arange(n * GROUP_ROWS, (n + 1) * GROUP_ROWS)
            writer.write_table(group.add_column(0, "id", [ids]), row_group_size=GROUP_ROWS)
    return folder


def extra_memory(folder: Path, memory: int, where: Literal["store", "memory"] = "store") -> int:
    """The maximum memory of the process in addition to what it used at its start."""
    completed = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), str(memory), where],
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    rows, first, most = map(int, completed.stdout.split())
    assert rows == GROUPS * GROUP_ROWS
    return most - first


def test_features_in_files_take_no_memory(folder: Path) -> None:
    size = encoded_bytes(GROUPS * GROUP_ROWS, 2 * NUMBERS + CATEGORIES)
    assert size >= 2 * ALLOWANCE
    assert extra_memory(folder, 0) < ALLOWANCE


@pytest.mark.slow
def test_features_that_fit_are_kept_in_memory(folder: Path) -> None:
    size = encoded_bytes(GROUPS * GROUP_ROWS, 2 * NUMBERS + CATEGORIES)
    assert size < extra_memory(folder, size) < size + ALLOWANCE


@pytest.mark.slow
def test_features_that_must_be_in_memory_are_kept_only_once_and_encoded(folder: Path) -> None:
    size = encoded_bytes(GROUPS * GROUP_ROWS, 2 * NUMBERS + CATEGORIES)
    assert size < extra_memory(folder, 0, "memory") < size + ALLOWANCE
