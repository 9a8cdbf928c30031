"""`florist simulate`: a grid of experiments in one place, from a configuration to its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from florist.common.settings.loader import load_section
from florist.experiments.grid import GridConfig, run_trials
from florist.experiments.results import write_tidy
from florist.experiments.summary import leak_table, utility_table

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.core.progress import Progress

#: Characters of a line of the tables, where no terminal says.
WIDTH = 160


def run_grid(
    config: Path, output: Path | None, jobs: int, progress: Progress, console: Console
) -> bool:
    """Run what is not there yet, gather and show all; whether every trial has a result."""
    grid = load_section(config, GridConfig)
    folder = output or config.with_suffix(".results")
    results, failures = run_trials(
        grid.data, grid.trials(), grid.audit, folder / "trials", jobs, progress
    )
    if results:
        write_tidy(results, folder / "results.parquet")
        # A file takes lines of any length; a terminal knows its own.
        wide = console if console.is_terminal else Console(file=console.file, width=WIDTH)
        wide.print(utility_table(results, grid.choose_by))
        wide.print(leak_table(results))
        console.print(f"All figures: {folder / 'results.parquet'}")
    for failure in failures:
        console.print(f"✗ {failure}", style="red", markup=False)
    return not failures
