"""From recipes to trials to a folder with a report: on few people, made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.experiments import reproduction
from florist.experiments.paper_page import Study
from florist.experiments.paper_results import Results
from florist.experiments.recipes import (
    RECIPES,
    SCALES,
    Condition,
    Lacking,
    Scale,
    baseline_full,
    sampled_labels,
)
from florist.experiments.reproduction import (
    EVERY_ATTACK,
    PAPERS_ATTACK,
    audit_of,
    parse_files,
    people_of,
    reproduce,
    trials_of,
)

TINY = replace(
    SCALES["small"], rows={"criteo": 600, "avazu": 600}, ratios=(0.5,), seeds=1, epochs=2
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Scale:
    monkeypatch.setitem(SCALES, "small", TINY)
    return TINY


def test_conditions_become_the_papers_trials() -> None:
    scale = SCALES["small"]
    trials = trials_of(Condition("criteo", Lacking.labels, "label-majority-tr", 0.25), scale)
    assert [trial.seed for trial in trials] == list(range(scale.seeds))
    assert (trials[0].alpha, trials[0].beta) == (0, 0.25)
    assert trials[0].lacked_by_both == "dummies"
    assert trials[0].epochs == scale.epochs
    assert trials[0].agreement().calibration == "train"
    (full, *_) = trials_of(baseline_full("avazu"), scale)
    assert (full.alpha, full.beta, full.method.who) == (0, 0, "everybody")
    (four, *_) = trials_of(sampled_labels("avazu", 4), scale)
    assert (four.agreement().labels.samples, four.epochs) == (4, 2)


def test_attacks_are_made_on_what_the_tables_list() -> None:
    small, paper = SCALES["small"], SCALES["paper"]
    for condition in RECIPES["criteo-features-attacks"].conditions((), ()):
        assert audit_of(condition, small) is EVERY_ATTACK
        assert audit_of(condition, paper) is PAPERS_ATTACK
    for scale in (small, paper):
        assert audit_of(sampled_labels("avazu", 1), scale) is PAPERS_ATTACK
    for condition in (
        baseline_full("criteo"),
        Condition("criteo", Lacking.labels, "label-majority", 0.25),
        Condition("criteo", Lacking.labels, "baseline-partial", 0.5),
        Condition("criteo", Lacking.both, "florist-paper", 0.5),
    ):
        assert audit_of(condition, small) is PAPERS_ATTACK
        assert audit_of(condition, paper) is None


def test_data_are_named_by_their_data_set() -> None:
    assert parse_files(["criteo=a=b.gz", "avazu=c"]) == {
        "criteo": Path("a=b.gz"),
        "avazu": Path("c"),
    }
    for wrong in ("criteo", "criteo=", "movies=a", "a.csv"):
        with pytest.raises(ConfigurationError, match="write criteo=FILE or avazu=FILE"):
            parse_files([wrong])


def test_people_are_the_files_or_made_up() -> None:
    given = people_of("avazu", "paper", Path("train.gz"))
    assert given.table is not None
    assert (given.table.id_column, given.rows) == ("id", None)
    made_up = [people_of(dataset, "small", None).generated for dataset in ("criteo", "avazu")]
    assert made_up[0] != made_up[1]
    with pytest.raises(ConfigurationError, match="--data criteo=FILE"):
        people_of("criteo", "paper", None)


def test_a_reproduction_ends_with_a_report_and_is_resumed(
    tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = [RECIPES["criteo-auc-change"], RECIPES["criteo-features-attacks"]]
    outcome = reproduce(recipes, "small", {}, tmp_path, 1, NoProgress())
    assert not outcome.failures
    assert outcome.report.read_text(encoding="utf-8").count("<section") == len(recipes) + 2
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["criteo-auc-change.png"]
    table = parquet.read_table(tmp_path / "results.parquet")
    assert {"paper_attack_auc", "auc", "ace"} < set(table.column("metric").to_pylist())
    results = outcome.study.results
    sampling = Condition("criteo", Lacking.features, "fea-sampling", 0.5)
    (measured,) = results.trials(sampling)
    assert 0 < measured.auc < 1
    assert measured.attack_auc is not None
    assert measured.leak is not None
    assert measured.leak_by
    assert [figures.epoch for figures in measured.epochs] == [0, 1]
    assert max(measured.losses) == 2 * 2  # 540 people, of whom each batch has 512
    facts = outcome.study.data["criteo"]
    assert (facts.rows, facts.test_rows, facts.real) == (540, 60, False)

    def must_not_run(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("florist.experiments.grid.run_trial", must_not_run)
    again = reproduce(recipes, "small", {}, tmp_path, 1, NoProgress())
    assert again.report.read_text(encoding="utf-8") == outcome.report.read_text(encoding="utf-8")


def test_the_command_says_what_holds_and_what_failed(
    tiny: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ConfigurationError("no such people")

    monkeypatch.setattr("florist.experiments.grid.run_trial", breaks)
    arguments = ["experiments", "paper", "--recipe", "criteo-auc-change", "--jobs", "1"]
    told = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])
    assert told.exit_code == 1
    assert "no such people" in told.output
    assert "report.html" in told.output.replace("\n", "")


def test_recipes_are_listed() -> None:
    told = CliRunner().invoke(app, ["experiments", "list"])
    assert told.exit_code == 0
    for name in RECIPES:
        assert name in told.output


def test_a_folder_that_cannot_be_written_is_named(tiny: Scale, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    study = Study("small", {}, [], Results([]), "0")
    with pytest.raises(ConfigurationError, match="--output"):
        reproduction._write(study, [], taken)
