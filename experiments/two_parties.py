"""Real runs of two processes on public data, next to what each party could do without a union.

The people of each data set are split as in a trial. Two processes align and train with the default
settings. The baselines are trials with the same people, split, seed and learner: the people whom
both parties have (`baseline-partial-default`), and the active party alone.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from florist.common.core.errors import FloristError
from florist.common.settings.agreement import TrainingAgreement
from florist.common.settings.data import PreprocessingSettings
from florist.experiments.grid import Failure, run_trials
from florist.experiments.methods import METHODS
from florist.experiments.people import PeopleSettings, RealDataFolder
from florist.experiments.people_sources import load_any_people
from florist.experiments.split_people import ALONE, SplitPeople, run_alone
from florist.experiments.trial import Trial, run_trial, trial_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from florist.common.core.progress import Progress
    from florist.experiments.grid import RunTrial
    from florist.experiments.methods import Method

log = logging.getLogger("florist.experiments")

#: The data sets, and the number of rows that are sampled; None: all.
DATA_SETS: dict[str, int | None] = {
    "sba_loans": 60_000,
    "default_credit": None,
    "diabetes130": None,
    "bank_marketing": None,
}
#: The fraction of the training people that each party lacks.
LACKED = 0.5


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The result of two processes: test metrics, and seconds by stage."""

    auc: float
    ace: float
    seconds: dict[str, float]


if TYPE_CHECKING:
    #: Runs both parties with these tables, in this empty folder.
    RunBoth = Callable[[SplitPeople, Path], RunFigures]


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Everything that is measured with one seed."""

    seed: int
    run: RunFigures
    partial_auc: float
    alone_auc: float


@dataclass(frozen=True, slots=True)
class DataSetResult:
    """The results of a data set; `rows` includes the people who are held out."""

    name: str
    rows: int
    seeds: tuple[SeedResult, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: data sets with their numbers of rows (None: all), and seeds."""

    data_sets: Mapping[str, int | None]
    seeds: tuple[int, ...]


class TwoPartyStudy:
    """Runs what `output` does not hold yet."""

    def __init__(
        self, real: Path, output: Path, run_both: RunBoth, jobs: int, progress: Progress
    ) -> None:
        self._real = real
        self._output = output
        self._run_both = run_both
        self._jobs = jobs
        self._progress = progress
        self.failures: list[Failure] = []

    def results(self, plan: Plan) -> list[DataSetResult]:
        """Run all data sets and seeds; leave out seeds of which something failed."""
        found = []
        for name, rows in plan.data_sets.items():
            source = RealDataFolder(name=name, folder=self._real)
            data = PeopleSettings(real=source, rows=rows)
            found.append(self._data_set(name, data, plan.seeds))
            # After each data set, so that something is there before the last one ends.
            write_results(found, self._output)
        return found

    def _data_set(self, name: str, data: PeopleSettings, seeds: Sequence[int]) -> DataSetResult:
        people = load_any_people(data)
        digest = data.digest()
        runs: dict[int, RunFigures] = {}
        with self._progress.step(f"{name}: runs of two processes") as step:
            step.expect(len(seeds))
            for seed in seeds:
                trial = trial_of(METHODS["default"], seed)
                tables = SplitPeople(people, trial.holdings(people.train))
                name_of_run = f"{name}-{seed}-{trial_digest(digest, trial, None)[:16]}"
                figures = self._run(name_of_run, tables, trial)
                if figures is not None:
                    runs[seed] = figures
                step.advance(1)
        partial = self._trials(data, METHODS["baseline-partial-default"], seeds, run_trial)
        alone = self._trials(data, ALONE, seeds, run_alone)
        finished = [seed for seed in seeds if all(seed in of for of in (runs, partial, alone))]
        return DataSetResult(
            name,
            len(people.train) + len(people.held_out),
            tuple(SeedResult(seed, runs[seed], partial[seed], alone[seed]) for seed in finished),
        )

    def _run(self, name: str, tables: SplitPeople, trial: Trial) -> RunFigures | None:
        """Return the result of a run, which may be finished already; None if it fails."""
        path = self._output / "runs" / f"{name}.json"
        known = _load(path)
        if known is not None:
            return known
        try:
            figures = self._run_both(tables, path.with_suffix(""))
        except FloristError as error:
            failure = Failure(trial, f"{name}: {error.reason}")
            log.error("%s", failure)  # noqa: TRY400 - expected; the party has logged it
            self.failures.append(failure)
            return None
        _replace(path, json.dumps(asdict(figures)))
        return figures

    def _trials(
        self, data: PeopleSettings, method: Method, seeds: Sequence[int], run: RunTrial
    ) -> dict[int, float]:
        """Return the test AUC of a baseline, by seed."""
        trials = [trial_of(method, seed) for seed in seeds]
        results, failures = run_trials(
            data, trials, None, self._output / "trials", self._jobs, self._progress, run
        )
        self.failures += failures
        return {result.trial.seed: result.last("auc") for result in results}


def trial_of(method: Method, seed: int) -> Trial:
    """Return a trial with the settings of a new configuration."""
    agreed, preprocessing = TrainingAgreement(), PreprocessingSettings()
    return Trial(
        method=method,
        alpha=LACKED,
        beta=LACKED,
        seed=seed,
        epochs=agreed.epochs,
        batch_size=agreed.batch_size,
        learning_rate=agreed.learning_rate,
        min_count=preprocessing.min_count,
        scaling=preprocessing.scaling,
        bins=preprocessing.bins,
    )


# --- the table ---

_HEADS = (
    *("data set", "rows", "default AUC", "partial AUC", "difference"),
    *("active alone AUC", "ACE", "minutes"),
)


def as_markdown(results: Sequence[DataSetResult]) -> str:
    """Return one table: a row per data set, means over seeds with standard deviations."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---" + "|---:" * (len(_HEADS) - 1) + "|"]
    for result in results:
        cells = _cells(result.seeds) if result.seeds else [""] * (len(_HEADS) - 2)
        lines.append(f"| {result.name} | {result.rows:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cells(seeds: Sequence[SeedResult]) -> list[str]:
    differences = [seed.run.auc - seed.partial_auc for seed in seeds]
    return [
        _with_deviation([seed.run.auc for seed in seeds]),
        _with_deviation([seed.partial_auc for seed in seeds]),
        _with_deviation(differences, sign="+"),
        _with_deviation([seed.alone_auc for seed in seeds]),
        f"{fmean(seed.run.ace for seed in seeds):.4f}",
        f"{fmean(sum(seed.run.seconds.values()) for seed in seeds) / 60:.1f}",
    ]


def _with_deviation(values: Sequence[float], sign: str = "") -> str:
    mean = f"{fmean(values):{sign}.4f}"
    return f"{mean} ± {stdev(values):.4f}" if len(values) > 1 else mean


def write_results(results: Sequence[DataSetResult], output: Path) -> None:
    """Write the table as Markdown, and all numbers as JSON."""
    facts = {
        "lacked": LACKED,
        "agreement": TrainingAgreement(test_table=True).model_dump(mode="json"),
        "data_sets": [asdict(result) for result in results],
    }
    _replace(output / "two-parties.md", as_markdown(results))
    _replace(output / "two-parties.json", json.dumps(facts, indent=1) + "\n")


_FIGURES = TypeAdapter(RunFigures)


def _load(path: Path) -> RunFigures | None:
    try:
        return _FIGURES.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _replace(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.part")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
