"""A table several times larger than what its reader may take is prepared and gathered from."""

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
#: Bytes beyond what the program has when it begins.
ALLOWANCE = 300_000_000

#: Prints the bytes of its own that it had at first, and at most: pages of files, which the system
#: takes back when it needs them, are no part of these.
CHILD = """
import sys, threading
from pathlib import Path
import numpy as np
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.data.feature_store import FeatureStore, in_memory
from florist.common.data.scan_table import scan_table
from florist.common.storage.files import FolderStorage

def own_bytes():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])

def watch():
    while not over.wait(0.005):
        seen.append(own_bytes())

folder, memory, where = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
seen, over = [own_bytes()], threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
try:
    table = Table(path=folder / "people.parquet", id_column="id")
    room = FeatureStore(memory, FolderStorage(folder / "work"))
    found = scan_table(table, "none", PreprocessingSettings(), room)
    if where == "room":
        features = room.hold(found)
    else:
        features = in_memory(found)
    random = np.random.default_rng(0)
    for _ in range(50):
        features.take(random.integers(0, len(features), 8192))
finally:
    over.set()
    watcher.join()
print(len(features), seen[0], max(seen))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 600 MB when it is encoded."""
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


def taken(folder: Path, memory: int, where: Literal["room", "memory"] = "room") -> int:
    """Bytes beyond what it had at first."""
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), str(memory), where],
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    rows, first, most = map(int, ended.stdout.split())
    assert rows == GROUPS * GROUP_ROWS
    return most - first


def test_what_is_in_files_takes_no_memory(folder: Path) -> None:
    size = encoded_bytes(GROUPS * GROUP_ROWS, NUMBERS + CATEGORIES)
    assert size >= 2 * ALLOWANCE
    assert taken(folder, 0) < ALLOWANCE


@pytest.mark.slow
def test_what_fits_is_held_in_memory(folder: Path) -> None:
    size = encoded_bytes(GROUPS * GROUP_ROWS, NUMBERS + CATEGORIES)
    assert size < taken(folder, size) < size + ALLOWANCE


@pytest.mark.slow
def test_what_must_be_in_memory_is_there_once_and_encoded(folder: Path) -> None:
    size = encoded_bytes(GROUPS * GROUP_ROWS, NUMBERS + CATEGORIES)
    assert size < taken(folder, 0, "memory") < size + ALLOWANCE
