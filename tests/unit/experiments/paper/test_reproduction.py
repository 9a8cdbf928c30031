"""From recipes to trials to a folder with a report, on a few generated people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from florist.cli.experiments import print_reproduction
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.core.progress import NoProgress
from florist.experiments.paper.recipes import (
    PAPER,
    RECIPES,
    SMALL,
    Condition,
    Lacking,
    baseline_full,
    sampled_labels,
)
from florist.experiments.paper.reproduction import (
    EVERY_ATTACK,
    PAPERS_ATTACK,
    audit_of,
    parse_files,
    people_of,
    reproduce,
    trials_of,
)

TINY = replace(SMALL, rows={"criteo": 600, "avazu": 600}, ratios=(0.5,), seeds=1, epochs=2)


def test_conditions_become_the_papers_trials() -> None:
    scale = SMALL
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


def test_attacks_are_made_where_the_tables_list_them() -> None:
    small, paper = SMALL, PAPER
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


def test_data_files_are_given_by_data_set() -> None:
    assert parse_files(["criteo=a=b.gz", "avazu=c"]) == {
        "criteo": Path("a=b.gz"),
        "avazu": Path("c"),
    }
    for wrong in ("criteo", "criteo=", "movies=a", "a.csv"):
        with pytest.raises(ConfigurationError, match="write criteo=FILE or avazu=FILE"):
            parse_files([wrong])


def test_people_are_read_or_generated() -> None:
    given = people_of("avazu", PAPER, Path("train.gz"))
    assert given.table is not None
    assert (given.table.id_column, given.rows) == ("id", None)
    generated = [people_of(dataset, SMALL, None).generated for dataset in ("criteo", "avazu")]
    assert generated[0] != generated[1]
    with pytest.raises(ConfigurationError, match="--data criteo=FILE"):
        people_of("criteo", PAPER, None)


def test_a_reproduction_writes_a_report_and_resumes(tmp_path: Path) -> None:
    recipes = [RECIPES["criteo-auc-change"], RECIPES["criteo-features-attacks"]]
    outcome = reproduce(recipes, TINY, {}, tmp_path, 1, NoProgress())
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

    def must_not_run(*_: object) -> NoReturn:
        raise AssertionError

    again = reproduce(recipes, TINY, {}, tmp_path, 1, NoProgress(), run=must_not_run)
    assert again.report.read_text(encoding="utf-8") == outcome.report.read_text(encoding="utf-8")


def test_the_command_prints_the_report_and_the_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> NoReturn:
        raise ConfigurationError("no such people")

    recipes = [RECIPES["criteo-auc-change"]]
    outcome = reproduce(recipes, TINY, {}, tmp_path, 1, NoProgress(), run=breaks)
    with pytest.raises(typer.Exit) as ended:
        print_reproduction(outcome)
    assert ended.value.exit_code == 1
    printed = capsys.readouterr().out
    assert "no such people" in printed
    assert "report.html" in printed.replace("\n", "")


def test_the_command_names_a_missing_data_file(tmp_path: Path) -> None:
    arguments = ["experiments", "paper", "--data", f"criteo={tmp_path / 'none.csv'}"]
    command = [*arguments, "--output", str(tmp_path / "out"), "--jobs", "1"]
    with pytest.raises(ConfigurationError, match=r"none\.csv"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_recipes_are_listed() -> None:
    told = CliRunner().invoke(app, ["experiments", "list"])
    assert told.exit_code == 0
    for name in RECIPES:
        assert name in told.output


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(ConfigurationError, match="--output"):
        reproduce([], TINY, {}, taken, 1, NoProgress())
