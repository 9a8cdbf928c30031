"""What verifying costs: fingerprints of tables as they are read, and manifests of results.

python benchmarks/integrity.py --rows 500000 --json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from florist.common.data.content_fingerprint import ContentFingerprint
from florist.common.data.feature_store import FeatureStore, encode_in_memory
from florist.common.data.scan_table import scan_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.storage.files import FolderStorage
from florist.common.storage.manifest import damages, write_manifest
from florist.experiments.click_data import (
    CATEGORICAL,
    ID_COLUMN,
    LABEL,
    NUMERIC,
    active_table,
    generate,
    write_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.data.raw_table import RawTable

#: The best of so many repetitions, since other processes disturb.
REPETITIONS = 5


def cpu_seconds(action: Callable[[], object]) -> float:
    """Return the CPU time of an action, in all threads."""
    start = time.process_time()
    action()
    return time.process_time() - start


def fingerprint_cost(path: Path, rows: int) -> dict[str, float]:
    """Measure reading and encoding a table, with the time for fingerprints apart."""
    features = [*NUMERIC, *CATEGORICAL]
    write_table(active_table(generate(rows, 0), np.arange(rows), features), path)
    table = Table(path=path, id_column=ID_COLUMN, label=LABEL)

    def read() -> None:
        store = FeatureStore(4 << 30, FolderStorage(path.parent))
        encode_in_memory(scan_table(table, "none", PreprocessingSettings(), store))

    found = []
    for _ in range(REPETITIONS):
        with _timed_fingerprints() as spent:
            total = cpu_seconds(read)
        found.append((sum(spent) / (total - sum(spent)), total, sum(spent)))
    share, total, spent_seconds = min(found)
    return {"seconds": total, "fingerprint_seconds": spent_seconds, "share": share}


@contextmanager
def _timed_fingerprints() -> Iterator[list[float]]:
    spent: list[float] = []
    add = ContentFingerprint.add

    def timed(self: ContentFingerprint, part: RawTable) -> None:
        spent.append(cpu_seconds(lambda: add(self, part)))

    ContentFingerprint.add = timed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        ContentFingerprint.add = add  # type: ignore[method-assign]


def manifest_cost(folder: Path, size: int) -> dict[str, float]:
    """Measure writing the manifest of a file of `size` bytes, and verifying it."""
    (folder / "file").write_bytes(np.random.default_rng(0).bytes(size))
    write = min(cpu_seconds(lambda: write_manifest(folder)) for _ in range(REPETITIONS))
    check = min(cpu_seconds(lambda: list(damages(folder))) for _ in range(REPETITIONS))
    return {"bytes": size, "write_seconds": write, "verify_seconds": check}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "result").mkdir()
        figures = {
            "rows": options.rows,
            "columns": len(NUMERIC) + len(CATEGORICAL),
            "csv": fingerprint_cost(folder / "table.csv", options.rows),
            "parquet": fingerprint_cost(folder / "table.parquet", options.rows),
            # The ranks of 16,777,216 rows.
            "manifest": manifest_cost(folder / "result", 8 << 24),
        }
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
