"""The speed of reading tables: writes a table in each format, and reads its IDs or all of it.

python benchmarks/load_ids.py --rows 10000000 --json
python benchmarks/load_ids.py --rows 1000000 --features
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from florist.common.data.preprocessing_fitter import fit_preprocessing
from florist.common.data.table_ids import TableIds
from florist.common.data.table_reader import read_whole_table
from florist.common.settings.data import PreprocessingSettings, Table
from florist.common.storage.files import FolderStorage
from florist.experiments.click_data import (
    CATEGORICAL,
    ID_COLUMN,
    LABEL,
    NUMERIC,
    active_table,
    generate,
    write_table,
)

#: Rows per batch in the second pass.
BATCH_ROWS = 1 << 16


def write_people(path: Path, rows: int) -> None:
    """Write IDs such as `person-000123456` in random order, and two numeric columns."""
    generator = np.random.default_rng(0)
    numbers = pa.array(generator.permutation(rows)).cast(pa.string())
    padded = pc.utf8_lpad(numbers, width=9, padding="0")
    table = pa.table(
        {
            "id": pc.binary_join_element_wise("person-", padded, ""),
            "age": generator.integers(18, 100, rows),
            "income": generator.integers(0, 10**6, rows) / 100,
        }
    )
    write_table(table, path)


def write_clicks(path: Path, rows: int) -> None:
    """Write IDs, labels, 13 numeric and 26 categorical columns."""
    features = [*NUMERIC, *CATEGORICAL]
    write_table(active_table(generate(rows, 0), np.arange(rows), features), path)


def measure_ids(path: Path, rows: int) -> dict[str, object]:
    """Check all IDs, then read them again in batches."""
    started = time.perf_counter()
    ids = TableIds(Table(path=path, id_column="id"), "strip", FolderStorage(path.parent))
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    assert sum(len(batch) for batch in ids.batches(BATCH_ROWS)) == rows
    return {
        **facts(path, rows, seconds),
        "second_pass_seconds": round(time.perf_counter() - started, 3),
        "peak_rss_mb": peak_mb(),
    }


def measure_features(path: Path, rows: int) -> dict[str, object]:
    """Load a whole table and preprocess it."""
    started = time.perf_counter()
    raw = read_whole_table(Table(path=path, id_column=ID_COLUMN, label=LABEL), "strip")
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    fitted = fit_preprocessing(raw, PreprocessingSettings(min_count=10, scaling="log"))
    fit_seconds = time.perf_counter() - started
    started = time.perf_counter()
    assert len(fitted.transform(raw)) == rows
    return {
        **facts(path, rows, seconds),
        "fit_seconds": round(fit_seconds, 3),
        "transform_seconds": round(time.perf_counter() - started, 3),
        "peak_rss_mb": peak_mb(),
    }


def facts(path: Path, rows: int, seconds: float) -> dict[str, object]:
    """Return the facts that both measurements report."""
    return {
        "format": "".join(path.suffixes).removeprefix("."),
        "rows": rows,
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
    }


def peak_mb() -> int:
    """Return the peak memory of this process so far, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def main() -> None:
    """Print a line for each format, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="+", default=["csv", "parquet"], metavar="FORMAT")
    parser.add_argument("--features", action="store_true", help="read whole tables of clicks")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    write, measure = (
        (write_clicks, measure_features) if arguments.features else (write_people, measure_ids)
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"people.{name}") for name in arguments.formats]
        # Each in a new process, so that its peak memory is its own.
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as workers:
            results = []
            for path in paths:
                workers.submit(write, path, arguments.rows).result()
                results.append(workers.submit(measure, path, arguments.rows).result())
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        print("  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
