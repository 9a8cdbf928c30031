"""Simulations of both parties in one process, on people whose true data are known."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from florist.api.config import as_yaml
from florist.api.progress import CallbackProgress
from florist.common.core.progress import NoProgress
from florist.common.settings.loader import load_section, parse_section
from florist.experiments.grid import GridSettings, TrialsFailed, run_trials
from florist.experiments.trial_results import tidy

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

    from florist.api.config import AnyPath
    from florist.api.progress import ProgressCallback


def simulate(
    settings: GridSettings | Mapping[str, object] | AnyPath,
    *,
    folder: AnyPath | None = None,
    jobs: int = 1,
    on_progress: ProgressCallback | None = None,
) -> pd.DataFrame | pa.Table:
    """Compare training methods by simulating both parties on this machine.

    Runs every combination of methods, ratios, seeds and hyper-parameters in `settings`, measures
    each model on held-out people, and attacks what the parties exchanged.

    Args:
        settings: the grid: settings, a mapping with the same keys, or the path of a YAML file.
        folder: keeps the result of each trial, so that a repeated call runs only the missing ones;
            None keeps nothing.
        jobs: number of processes; 1 runs all trials in this process. With more, a script must call
            this function under `if __name__ == "__main__":`, because each process imports it.
        on_progress: called with each `ProgressEvent`; units are trials.

    Returns:
        One row per measured number (long format), as a `pandas.DataFrame` if pandas is installed,
        otherwise as a `pyarrow.Table`.

    Raises:
        ConfigurationError: the settings or the data are invalid.
        TrialsFailed: some trials failed; its `failures` say why.

    Example:
        >>> results = florist.simulate({
        ...     "data": {"generated": {"people": 2000}},
        ...     "methods": ["default", "baseline-partial"],
        ...     "ratios": [0.5],
        ... })
        >>> results[(results.metric == "auc") & (results.part == "test")]
    """
    grid = load_grid(settings)
    progress = NoProgress() if on_progress is None else CallbackProgress(on_progress)
    with ExitStack() as stack:
        kept = folder or stack.enter_context(TemporaryDirectory(prefix="florist-simulation-"))
        results, failures = run_trials(
            grid.data, grid.trials(), grid.audit, Path(kept), jobs, progress
        )
    if failures:
        raise TrialsFailed(failures)
    table = tidy(results)
    return table.to_pandas() if find_spec("pandas") else table


def load_grid(settings: GridSettings | Mapping[str, object] | AnyPath) -> GridSettings:
    """Return grid settings, validated if they are a mapping or the path of a file.

    Raises:
        ConfigurationError: they are invalid; the message names the keys.
    """
    if isinstance(settings, GridSettings):
        return settings
    if isinstance(settings, str | PathLike):
        return load_section(Path(settings), GridSettings)
    return parse_section(as_yaml(settings), GridSettings, folder=Path.cwd(), source="settings")
