"""Runs recipes: turns conditions into trials, and trials into the numbers of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from florist.common.core.errors import ConfigurationError
from florist.common.core.release import RELEASE
from florist.common.core.text import quoted
from florist.common.settings.data import Table
from florist.common.training.history import EpochFigures
from florist.experiments.grid import Failure, run_trials
from florist.experiments.methods import METHODS
from florist.experiments.paper.explanations import DataFacts
from florist.experiments.paper.numbers import TABLE_RATIO
from florist.experiments.paper.plots import plots_of, write_png
from florist.experiments.paper.recipes import (
    DATASETS,
    FULL,
    PARTIAL,
    Condition,
    Lacking,
    all_conditions,
)
from florist.experiments.paper.report import PaperStudy, render
from florist.experiments.paper.results import Measured, Results
from florist.experiments.people import Generated, HeldOut, PeopleSettings, load_people
from florist.experiments.trial import Trial, TrialAudit, run_trial
from florist.experiments.trial_results import write_tidy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from florist.common.core.progress import Progress
    from florist.common.core.roles import RoleName
    from florist.experiments.grid import RunTrial
    from florist.experiments.methods import Method
    from florist.experiments.paper.numbers import DatasetName
    from florist.experiments.paper.recipes import Recipe, Scale
    from florist.experiments.trial import TrialResult

#: Intervals are not shown, so few bootstrap samples suffice.
EVERY_ATTACK, PAPERS_ATTACK = TrialAudit(samples=20), TrialAudit(attacks=[], samples=20)

#: Number of points of a loss curve.
STRETCHES = 60


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The outcome of a reproduction."""

    study: PaperStudy
    failures: Sequence[Failure]
    report: Path


def reproduce(
    recipes: Sequence[Recipe],
    scale: Scale,
    files: Mapping[DatasetName, Path],
    output: Path,
    jobs: int,
    progress: Progress,
    run: RunTrial = run_trial,
) -> Reproduction:
    """Run the trials that `output` does not hold yet; write the report, plots and all numbers.

    Args:
        recipes: the tables and figures to reproduce.
        scale: the size of the experiments.
        files: data sets as published, or samples of their rows; others are generated.
        output: the folder.
        jobs: number of processes.
        progress: counts trials.
        run: runs one trial.

    Raises:
        ConfigurationError: data are missing or cannot be used.
    """
    results: list[TrialResult] = []
    failures: list[Failure] = []
    measured: list[tuple[Condition, Measured]] = []
    data: dict[DatasetName, DataFacts] = {}
    people = {
        dataset: people_of(dataset, scale, files.get(dataset))
        for dataset in DATASETS
        if any(recipe.dataset == dataset for recipe in recipes)
    }
    for dataset, settings in people.items():
        data[dataset] = _facts(dataset, settings)
        needed = all_conditions((r for r in recipes if r.dataset == dataset), scale)
        for audit in (EVERY_ATTACK, PAPERS_ATTACK, None):
            trials = {
                trial.model_dump_json(): (condition, trial)
                for condition in needed
                if audit_of(condition, scale) is audit
                for trial in trials_of(condition, scale)
            }
            if not trials:
                continue
            found, failed = run_trials(
                settings,
                [trial for _, trial in trials.values()],
                audit,
                output / "trials",
                jobs,
                progress,
                run,
            )
            results += found
            failures += failed
            for result in found:
                condition, _ = trials[result.trial.model_dump_json()]
                measured.append((condition, measured_in(condition, result)))
    study = PaperStudy(scale, data, recipes, Results(measured), RELEASE)
    return Reproduction(study, failures, _write(study, results, output))


def _write(study: PaperStudy, results: Sequence[TrialResult], output: Path) -> Path:
    report, pictures = output / "report.html", output / "plots"
    try:
        pictures.mkdir(parents=True, exist_ok=True)
        write_tidy(results, output / "results.parquet")
        for recipe in study.recipes:
            for plot in plots_of(recipe, study.results):
                write_png(plot, pictures)
        report.write_text(render(study), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{output} cannot be written: {error.strerror or error}; choose another --output"
        ) from None
    return report


# --- data ---


def parse_files(texts: Sequence[str]) -> dict[DatasetName, Path]:
    """Parse arguments of the form `criteo=FILE` and `avazu=FILE`.

    Raises:
        ConfigurationError: an argument has another form.
    """
    files: dict[DatasetName, Path] = {}
    for text in texts:
        name, _, path = text.partition("=")
        dataset = next((known for known in DATASETS if known == name), None)
        if dataset is None or not path:
            raise ConfigurationError(
                f"--data {quoted(text)}: write {' or '.join(f'{known}=FILE' for known in DATASETS)}"
            )
        files[dataset] = Path(path)
    return files


def people_of(dataset: DatasetName, scale: Scale, file: Path | None) -> PeopleSettings:
    """Return the people to train and test on.

    Raises:
        ConfigurationError: this scale needs a file.
    """
    rows = scale.rows[dataset]
    split = HeldOut(test=0.1, validation=0.0)
    if file is not None:
        table = Table.model_validate({"path": file, "format": dataset})
        return PeopleSettings(table=table, rows=rows, split=split)
    if not scale.generates_data:
        raise ConfigurationError(
            f"--scale {scale.name} needs all of {dataset.capitalize()}: give its training file "
            f"with --data {dataset}=FILE, leave out its recipes, or use --scale small"
        )
    generated = Generated(people=rows or 40_000, seed=1 + DATASETS.index(dataset))
    return PeopleSettings(generated=generated, split=split)


def _facts(dataset: DatasetName, settings: PeopleSettings) -> DataFacts:
    people = load_people(settings)
    used = np.concatenate([people.train, people.held_out])
    return DataFacts(
        dataset,
        settings.table.path.name if settings.table else "generated clicks",
        rows=len(people.train),
        test_rows=len(people.test),
        positive_rate=float(people.labels[used].mean()),
        real=settings.table is not None,
    )


# --- trials ---


def trials_of(condition: Condition, scale: Scale) -> list[Trial]:
    """Return one trial per seed; as in the paper, people whom both parties lack are kept."""
    return [
        Trial(
            method=_method(condition),
            alpha=condition.alpha,
            beta=condition.beta,
            seed=seed,
            epochs=condition.epochs or scale.epochs,
            batch_size=scale.batch_size,
            learning_rate=scale.learning_rate,
            lacked_by_both="dummies",
            min_count=scale.min_count,
            scaling=scale.scaling,
        )
        for seed in range(scale.seeds)
    ]


def _method(condition: Condition) -> Method:
    method = METHODS[condition.method]
    if condition.samples == 1:
        return method
    name = f"{method.name}, {condition.samples} labels"
    return method.but(name, labels={"samples": condition.samples})


def audit_of(condition: Condition, scale: Scale) -> TrialAudit | None:
    """Return the attacks to make; they depend on whether the paper lists an attack AUC."""
    listed = (
        condition.lacking is not Lacking.both
        and condition.method not in {FULL, PARTIAL}
        and condition.ratio == TABLE_RATIO
    )
    if scale.every_attack:
        return EVERY_ATTACK if listed and condition.epochs is None else PAPERS_ATTACK
    return PAPERS_ATTACK if listed else None


#: The attacker: labels are inferred from gradients, features from embeddings.
_ATTACKER: Mapping[Lacking, RoleName] = {Lacking.labels: "passive", Lacking.features: "active"}


def measured_in(condition: Condition, result: TrialResult) -> Measured:
    """Return the metrics of a trial that the tables show."""
    attack, leak = None, None
    if side := _ATTACKER.get(condition.lacking):
        attack = next((f.value for f in result.values("paper_attack_auc", side=side)), None)
        leak = result.strongest(side)
    return Measured(
        auc=result.last("auc"),
        ace=result.last("ace"),
        attack_auc=attack,
        leak=leak.value if leak else None,
        leak_by=str(leak.attack) if leak else "",
        losses=_stretches(result.losses),
        epochs=_epochs(result),
    )


def _stretches(losses: Sequence[float]) -> dict[int, float]:
    """Return the mean loss over equal ranges of steps, by the last step of each."""
    parts = np.array_split(np.asarray(losses), min(STRETCHES, len(losses)))
    ends = np.cumsum([len(part) for part in parts])
    return {int(end): float(part.mean()) for end, part in zip(ends, parts, strict=True)}


def _epochs(result: TrialResult) -> list[EpochFigures]:
    losses = np.array_split(np.asarray(result.losses), result.trial.epochs)
    figures = zip(*(result.values(name, part="test") for name in _FIGURES), strict=True)
    return [
        EpochFigures(number, fmean(loss), *(figure.value for figure in found))
        for number, (loss, found) in enumerate(zip(losses, figures, strict=True))
    ]


_FIGURES = ("auc", "ace", "log_loss")
