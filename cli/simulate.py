"""`florist simulate`: run a grid of trials and print its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from florist.api.simulation import load_grid
from florist.experiments.grid import run_trials
from florist.experiments.grid_summary import leak_table, skipped_attacks, utility_table
from florist.experiments.trial_results import write_tidy

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.progress import Progress

#: Width of the tables in characters, if the output is not a terminal.
WIDTH = 160


def run_grid(
    config: Path, output: Path | None, jobs: int, progress: Progress, console: Console
) -> bool:
    """Run the missing trials and print all results; return whether every trial succeeded."""
    grid = load_grid(config)
    folder = output or config.with_suffix(".results")
    results, failures = run_trials(
        grid.data, grid.trials(), grid.audit, folder / "trials", jobs, progress
    )
    if results:
        write_tidy(results, folder / "results.parquet")
        # A terminal has its own width.
        wide = console if console.is_terminal else Console(file=console.file, width=WIDTH)
        wide.print(utility_table(results, grid.choose_by))
        wide.print(leak_table(results))
        for line in skipped_attacks(results):
            console.print(f"not run: {line}", markup=False)
        console.print(f"All results: {folder / 'results.parquet'}")
    for failure in failures:
        console.print(f"✗ {failure}", style="red", markup=False)
    return not failures
