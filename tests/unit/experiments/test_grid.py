"""Grids: their trials, resuming, and their results."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml
from pyarrow import parquet
from rich.console import Console
from typer.testing import CliRunner

import florist.cli
from florist.cli import tool
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.common.settings.loader import load_section, parse_section
from florist.experiments.grid import GridSettings, run_trials
from florist.experiments.grid_summary import best_groups, leak_table, skipped_attacks
from florist.experiments.trial import Measurement, SkippedAttack, Trial, TrialResult, run_trial
from florist.experiments.trial_results import ResultStore, tidy
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from florist.experiments.grid import Failure, RunTrial

SMALL: dict[str, Any] = {
    "data": {"generated": {"people": 600}, "split": {"test": 0.2, "validation": 0.2}},
    "methods": ["baseline-partial", "default"],
    "ratios": [0.5],
    "seeds": [0, 1],
    "batch_size": [128],
    "model": {"hidden": [8]},
    "audit": {"attacks": ["spectral", "gradient-norm"], "samples": 20},
}


def configured(**changes: object) -> GridSettings:
    text = yaml.safe_dump(SMALL | changes)
    return parse_section(text, GridSettings, folder=Path(), source="grid.yml")


def run(
    config: GridSettings, folder: Path, jobs: int = 1, trial_runner: RunTrial = run_trial
) -> tuple[list[TrialResult], list[Failure]]:
    return run_trials(
        config.data, config.trials(), config.audit, folder, jobs, NoProgress(), trial_runner
    )


def figures(results: list[TrialResult]) -> list[object]:
    return [(result.trial, result.figures, result.losses, result.sizes) for result in results]


# --- trials ---


def test_a_grid_is_all_combinations() -> None:
    config = configured(
        methods=[
            "florist-paper",
            {"name": "noisy", "base": "default", "agreement": {"embedding_noise": 0.5}},
            {"name": "default", "epochs": [3]},
        ],
        ratios=[0.2, {"alpha": 0.0, "beta": 0.5}],
        epochs=[1, 2],
        learning_rate=[0.001, 0.01],
    )
    trials = config.trials()
    assert len(trials) == 2 * 2 * 2 * (2 + 2 + 1)  # seeds, ratios, rates, epochs by method
    assert len({trial.model_dump_json() for trial in trials}) == len(trials)
    ratios = {(trial.alpha, trial.beta) for trial in trials}
    assert ratios == {(0.2, 0.2), (0.0, 0.5)}
    noisy = next(trial for trial in trials if trial.method.name == "noisy")
    assert noisy.agreement().embedding_noise == 0.5
    assert noisy.agreement().cut_width == 0
    paper = next(trial for trial in trials if trial.method.name == "florist-paper")
    assert paper.agreement().cut_width == 8
    assert {trial.epochs for trial in trials if trial.method.name == "default"} == {3}


def test_the_full_baseline_is_the_same_at_every_ratio() -> None:
    trials = configured(methods=["baseline-full"], ratios=[0.2, 0.5], seeds=[4]).trials()
    assert [(trial.alpha, trial.beta) for trial in trials] == [(0.0, 0.0)]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"methods": ["florist"]}, "unknown method 'florist'; choose one of: default, florist-paper"),
    ({"methods": []}, "methods: must"),
    ({"methods": ["default", "default"]}, "has 'default' twice"),
    ({"methods": [{"name": "new", "base": "none"}]}, "unknown method 'none'"),
    ({"methods": [{"name": "default", "agreement": {"sticky": False}}]}, "give a new `name`"),
    ({"methods": [{"name": "default", "base": "default"}]}, "is a known method"),
    (
        {"methods": [{"name": "new", "base": "default", "agreement": {"stiky": False}}]},
        "methods.0: stiky",
    ),
    ({"methods": [{"name": "default", "epoch": [1]}]}, "methods.0.epoch: unknown key; did you"),
    ({"ratios": [1.0]}, "ratios.0.alpha: must be less than 1"),
    ({"ratios": [{"alpha": 0.5}]}, "ratios.0.beta: missing"),
    ({"audit": {"attacks": ["none"]}}, "audit.attacks: attack 'none' is unknown"),
    ({"seed": [1]}, "seed: unknown key; did you mean `seeds`"),
    ({"learning_rate": 0.1}, "learning_rate: must be a valid list"),
    ({"data": {"generated": {}, "split": {"test": 0.6, "validation": 0.4}}}, "must leave people"),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=[said for _, said in BAD])
def test_an_invalid_configuration_names_the_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(**changes)
    assert said in caught.value.reason
    assert caught.value.reason.startswith("grid.yml: ")


def test_the_documented_example_is_valid() -> None:
    root = Path(next(iter(florist.cli.__path__))).parent
    assert load_section(root / "docs" / "how-to" / "simulate-example.yml", GridSettings).trials()


# --- running ---


def test_an_interrupted_grid_resumes(tmp_path: Path) -> None:
    whole, _ = run(configured(), tmp_path / "whole")
    done: list[object] = []

    def stopped_after_two(*arguments: Any) -> TrialResult:  # noqa: ANN401 - as `run_trial`
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(arguments)
        return run_trial(*arguments)

    with pytest.raises(KeyboardInterrupt):
        run(configured(), tmp_path / "parts", trial_runner=stopped_after_two)
    done.clear()
    results, failures = run(configured(), tmp_path / "parts", trial_runner=stopped_after_two)
    assert not failures
    assert len(done) == 2
    assert figures(results) == figures(whole)
    done.clear()
    run(configured(), tmp_path / "parts", trial_runner=stopped_after_two)
    assert not done


def test_a_damaged_result_is_computed_again(tmp_path: Path) -> None:
    config = configured(methods=["baseline-partial"], seeds=[0])
    first, _ = run(config, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text()[:100])
    again, _ = run(config, tmp_path)
    assert figures(first) == figures(again)


def test_a_failed_trial_does_not_end_the_others(tmp_path: Path) -> None:
    def fails_once(people: Any, trial: Trial, audit: Any) -> TrialResult:  # noqa: ANN401
        if trial.method.name == "default" and trial.seed == 0:
            raise ZeroDivisionError("planted")
        return run_trial(people, trial, audit)

    results, (failure,) = run(configured(), tmp_path, trial_runner=fails_once)
    assert len(results) == 3
    assert str(failure).startswith("default, alpha 0.5")
    assert str(failure).endswith("seed 0: ZeroDivisionError: planted")


@pytest.mark.slow
def test_processes_give_the_same_results_and_keep_them_when_killed(tmp_path: Path) -> None:
    path, trials = tmp_path / "grid.yml", tmp_path / "out" / "trials"
    path.write_text(yaml.safe_dump(SMALL | {"methods": ["default"], "seeds": list(range(50))}))
    program = "from florist.cli.tool import main; main()"
    command = ["simulate", "--config", str(path), "--output", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: process.poll() is not None or len(list(trials.glob("*.json"))) >= 2, within=250
        )
        workers = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    finished = {file.name: file.stat().st_mtime_ns for file in trials.glob("*.json")}
    config = configured(methods=["default"], seeds=[0, 1])
    gone_on, failures = run(config, trials)
    assert not failures
    for name, written in finished.items():
        assert (trials / name).stat().st_mtime_ns == written
    here, _ = run(config, tmp_path / "here")
    assert figures(here) == figures(gone_on)
    assert finished.keys() & {file.name for file in (tmp_path / "here").iterdir()}


# --- results ---


def test_the_command_prints_and_keeps_all_results(tmp_path: Path) -> None:
    path = tmp_path / "grid.yml"
    path.write_text(yaml.safe_dump(SMALL))
    command = ["simulate", "--config", str(path), "--jobs", "1"]
    result = CliRunner().invoke(tool.app, command)
    assert result.exit_code == 0, result.output
    assert "baseline-partial" in result.output
    table = parquet.read_table(tmp_path / "grid.results" / "results.parquet")
    keys = {(row["method"], row["seed"]) for row in table.select(["method", "seed"]).to_pylist()}
    assert keys == set(product(["baseline-partial", "default"], [0, 1]))
    diverges = {"methods": ["default"], "seeds": [2], "learning_rate": [1e30]}
    path.write_text(yaml.safe_dump(SMALL | diverges))
    result = CliRunner().invoke(tool.app, command)
    assert result.exit_code == 1
    assert "rate 1e+30, seed 2:" in " ".join(result.output.split())


def made(method: str, seed: int, rate: float, validation: float, test: float) -> TrialResult:
    trial = Trial.model_validate(
        {"method": {"name": method}, "alpha": 0.5, "beta": 0.5, "seed": seed, "learning_rate": rate}
    )
    quality = {"validation": validation, "test": test}
    return TrialResult(
        trial,
        tuple(Measurement("auc", value, part=part, epoch=1) for part, value in quality.items()),
        losses=(0.7, 0.6),
        sizes={"union": 3},
        seconds={"training": 0.5},
    )


def test_hyper_parameters_are_chosen_on_validation_people_only() -> None:
    results = [
        made("a", 0, 0.1, validation=0.6, test=0.9),
        made("a", 1, 0.1, validation=0.6, test=0.9),
        made("a", 0, 0.2, validation=0.5, test=0.7),
        made("a", 1, 0.2, validation=0.8, test=0.7),
        made("b", 0, 0.1, validation=0.6, test=0.7),
    ]
    best = best_groups(results)
    assert [(setting.method, setting.learning_rate) for setting in best] == [("a", 0.2), ("b", 0.1)]


def test_a_tidy_table_has_a_row_per_number(tmp_path: Path) -> None:
    result = made("a", 0, 0.1, validation=0.6, test=0.9)
    ResultStore(tmp_path).save("digest", result)
    assert ResultStore(tmp_path).load("digest") == result
    assert ResultStore(tmp_path).load("other") is None
    rows = tidy([result]).to_pylist()
    assert [(row["metric"], row["part"], row["step"], row["value"]) for row in rows] == [
        ("auc", "validation", None, 0.6),
        ("auc", "test", None, 0.9),
        ("loss", None, 1, 0.7),
        ("loss", None, 2, 0.6),
        ("people", "union", None, 3.0),
        ("seconds", "training", None, 0.5),
    ]
    assert {(row["method"], row["alpha"], row["learning_rate"]) for row in rows} == {
        ("a", 0.5, 0.1)
    }


def attacked(seed: int, low: float) -> TrialResult:
    """Return a result with an attack, its worst stratum, and one that was skipped."""
    names: dict[str, Any] = {"side": "active", "attack": "pair"}
    figures = (
        Measurement("attack_folded_auc", 0.6, 0.58, 0.62, **names),
        Measurement("tpr_0.01", 0.03, 0.02, 0.04, **names),
        Measurement("worst_stratum_auc", 0.75, low, 0.8, **names, stratum="label 1"),
    )
    skipped = (SkippedAttack("passive", "flips", "needs two epochs"),)
    return replace(made("a", seed, 0.1, 0.6, 0.9), figures=figures, skipped=skipped)


def test_the_worst_stratum_is_shown_next_to_the_mean() -> None:
    console = Console(width=200, file=io.StringIO())
    console.print(leak_table([attacked(0, 0.65), attacked(1, 0.7)]))
    assert isinstance(console.file, io.StringIO)
    shown = " ".join(console.file.getvalue().split())
    assert "0.600 ±0.000" in shown
    assert "0.750 (0.700\N{EN DASH}0.800)" in shown
    assert "label 1" in shown
    assert "corrected for the number of strata and attacks" in shown


def test_skipped_attacks_are_listed_once() -> None:
    found = skipped_attacks([attacked(0, 0.65), attacked(1, 0.7)])
    assert found == ["flips by the passive party: needs two epochs"]


def test_strata_and_skipped_attacks_are_kept(tmp_path: Path) -> None:
    result = attacked(0, 0.65)
    ResultStore(tmp_path).save("digest", result)
    assert ResultStore(tmp_path).load("digest") == result
    rows = [row for row in tidy([result]).to_pylist() if row["stratum"]]
    assert [(row["metric"], row["stratum"], row["low"]) for row in rows] == [
        ("worst_stratum_auc", "label 1", 0.65)
    ]
