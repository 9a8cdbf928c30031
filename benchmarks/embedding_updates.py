"""The time of a training step by size of the embedding table, with dense and sparse updates.

    python benchmarks/embedding_updates.py --rows 10000 100000 1000000 10000000 --json

A step is forward, backward and Adam's update. It measures the table alone, with FLORIST's `gather`
and with nn.Embedding and torch's fused Adam and SparseAdam, and the whole half of the passive
party, with numeric columns and two layers of 128 units.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from florist.common.settings.training import Optimiser
from florist.common.training.embedding_rows import gather
from florist.common.training.models import BottomModel
from florist.common.training.optimisers import Optimisers, SparseRowOptimiser
from florist.common.training.rate_schedule import RateSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH = 4
NUMERIC = 13
RATES = RateSchedule(1e-3, 1, "constant")


def median_ms(step: Callable[[], None], repeats: int) -> float:
    """Return the median time of `repeats` steps, after two warm-up steps."""
    times = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return round(statistics.median(times[2:]) * 1e3, 2)


def draw(rows: int, batch: int, columns: int, skew: float) -> tuple[list[int], Tensor]:
    """Return cardinalities that sum to `rows`, and a batch; more skew means fewer categories."""
    cardinality = rows // columns
    uniform = torch.rand(batch, columns, dtype=torch.float64)
    return [cardinality] * columns, (uniform**skew * cardinality).long()


def table_step(rows: int, indices: Tensor, *, sparse: bool, ours: bool) -> Callable[[], None]:
    """Return a step of the table alone."""
    table = nn.Embedding(rows, WIDTH, sparse=sparse)
    upstream = torch.randn(*indices.shape, WIDTH)
    lookup: Callable[[Tensor], Tensor] = (lambda at: gather(table, at)) if ours else table
    update: Callable[[], object]
    if not sparse:
        update = torch.optim.Adam([table.weight], fused=True).step
    elif ours:
        update = partial(SparseRowOptimiser(table.weight, Optimiser()).step, RATES.peak)
    else:
        update = torch.optim.SparseAdam([table.weight]).step

    def step() -> None:
        table.weight.grad = None
        lookup(indices).backward(upstream)
        update()

    return step


def model_step(cardinalities: list[int], categories: Tensor, *, sparse: bool) -> Callable[[], None]:
    """Return a step of the passive party's half."""
    model = BottomModel(
        numeric=NUMERIC,
        cardinalities=cardinalities,
        embedding_width=WIDTH,
        layers=[128, 128],
        sparse=sparse,
        seed=0,
    )
    optimisers = Optimisers(model, Optimiser(), RATES)
    numeric, upstream = torch.rand(len(categories), NUMERIC), torch.randn(len(categories), 128)

    def step() -> None:
        optimisers.zero_grad()
        model(numeric, categories).backward(upstream)
        optimisers.step(0)

    return step


def measure(
    rows: int, *, batch: int, columns: int, skew: float, repeats: int
) -> Iterator[dict[str, object]]:
    cardinalities, categories = draw(rows, batch, columns, skew)
    indices = categories + torch.arange(columns) * cardinalities[0]
    touched = len(indices.unique())
    for updates, sparse in (("dense", False), ("sparse", True)):
        yield {
            "rows": rows,
            "rows_in_batch": touched,
            "updates": updates,
            "torch_table_ms": median_ms(
                table_step(rows, indices, sparse=sparse, ours=False), repeats
            ),
            "table_ms": median_ms(table_step(rows, indices, sparse=sparse, ours=True), repeats),
            "model_ms": median_ms(model_step(cardinalities, categories, sparse=sparse), repeats),
        }


def main() -> None:
    """Print a line for each table size and kind of update, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=26)
    parser.add_argument("--skew", type=float, default=3.0, help="1 means no skew")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    shape = {name: getattr(arguments, name) for name in ("batch", "columns", "skew", "repeats")}
    torch.manual_seed(0)
    results = [result for rows in arguments.rows for result in measure(rows, **shape)]
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        print("  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
