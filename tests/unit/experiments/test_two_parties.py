"""Runs of two processes next to their baselines: tables, table of results, resuming."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyarrow import parquet

from florist.cli.party_processes import PartiesFailed, run_both_parties
from florist.common.core.progress import NoProgress
from florist.experiments.methods import METHODS
from florist.experiments.people import HeldOut
from florist.experiments.real_data import load_real_data
from florist.experiments.sample_data import held_out_path
from florist.experiments.split_people import ALONE, LABEL, SplitPeople, run_alone
from florist.experiments.trial import run_trial
from florist.experiments.two_parties import (
    DATA_SETS,
    DataSetResult,
    Plan,
    RunFigures,
    SeedResult,
    TwoPartyStudy,
    as_markdown,
    trial_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from florist.experiments.people import People

NAME = "default_credit"


def write_credit(folder: Path, rows: int) -> None:
    """Write a generated data set with the file names and columns of `default_credit`.

    The label depends on the columns of both parties.
    """
    random = np.random.default_rng(0)
    guest, host = random.normal(size=(2, rows, 2)).round(3)
    odds = guest[:, 0] + 2 * host[:, 0]
    label = (random.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)
    tables = {
        "guest": ["id,y,x0,x1", *(f"{i},{label[i]},{a},{b}" for i, (a, b) in enumerate(guest))],
        "host": ["id,x0,x1", *(f"{i},{a},{b}" for i, (a, b) in enumerate(host))],
    }
    (folder / NAME).mkdir(parents=True)
    for name, lines in tables.items():
        with gzip.open(folder / NAME / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    write_credit(folder, 1200)
    return folder


@pytest.fixture(scope="module")
def people(real: Path) -> People:
    return load_real_data(NAME, real, split=HeldOut(test=0.25, validation=0.1))


def figures(auc: float = 0.7) -> RunFigures:
    return RunFigures(auc, 0.02, {"align": 20.0, "train": 70.0})


def test_each_party_has_its_rows_and_columns_and_both_the_test_people(
    people: People, tmp_path: Path
) -> None:
    trial = trial_of(METHODS["default"], seed=3)
    holdings = trial.holdings(people.train)
    split = SplitPeople(people, holdings)
    paths = tmp_path / "active.parquet", tmp_path / "passive.parquet"
    split.write(*paths)
    active, passive = map(parquet.read_table, paths)
    assert active.column_names == ["person", LABEL, "x0", "x1"]
    assert passive.column_names == ["person", "host_x0", "host_x1"]
    for table, rows in ((active, holdings.active), (passive, holdings.passive)):
        assert table.column("person").to_pylist() == [str(row) for row in rows]
        assert len(rows) == round(len(people.train) / 2)
    assert active.column(LABEL).to_pylist() == people.labels[holdings.active].tolist()
    tests = [parquet.read_table(held_out_path(path)).column("person") for path in paths]
    assert tests[0].equals(tests[1])
    assert tests[0].to_pylist() == [str(row) for row in people.test]


def test_the_settings_are_the_defaults_except_for_what_a_trial_needs(people: People) -> None:
    split = SplitPeople(people, trial_of(METHODS["default"], 0).holdings(people.train))
    agreed = {key for key in split.settings("active") if key.startswith("agreement.")}
    assert agreed == {
        "agreement.training.test_table",
        "agreement.union.overlap.minimum",
        "agreement.union.overlap.minimum_share",
        "agreement.union.overlap.maximum_share",
    }
    assert "data.train.label" not in split.settings("passive")


def test_alone_uses_only_the_rows_and_columns_of_the_active_party(people: People) -> None:
    trial = trial_of(ALONE, seed=1)
    result = run_alone(people, trial, None)
    assert result.trial == trial
    own = trial_of(METHODS["default"], seed=1).holdings(people.train).active
    assert result.sizes["union"] == len(own)
    changed = people.columns
    for name in ("host_x0", "host_x1"):
        place = changed.column_names.index(name)
        changed = changed.set_column(place, name, changed.column("x0"))
    labels = people.labels.copy()
    others = np.setdiff1d(people.train, own)
    labels[others] = 1 - labels[others]
    without = run_alone(replace(people, columns=changed, labels=labels), trial, None)
    assert without.figures == result.figures
    partial = run_trial(people, trial_of(METHODS["baseline-partial-default"], 1), None)
    assert partial.last("auc") > result.last("auc")  # the columns of the peer are worth more


def test_the_table_has_means_deviations_and_paired_differences() -> None:
    seeds = (
        SeedResult(0, figures(0.70), partial_auc=0.69, alone_auc=0.60),
        SeedResult(1, figures(0.72), partial_auc=0.71, alone_auc=0.62),
    )
    text = as_markdown(
        [
            DataSetResult("two", 12_000, seeds),
            DataSetResult("one", 500, seeds[:1]),
            DataSetResult("none", 500, ()),
        ]
    )
    head, line, two, one, none = text.splitlines()
    assert head.split(" | ")[2] == "default AUC"
    assert len({row.count("|") for row in (head, line, two, one, none)}) == 1
    assert two == (
        "| two | 12,000 | 0.7100 ± 0.0141 | 0.7000 ± 0.0141 | +0.0100 ± 0.0000 "
        "| 0.6100 ± 0.0141 | 0.0200 | 1.5 |"
    )
    assert one == "| one | 500 | 0.7000 | 0.6900 | +0.0100 | 0.6000 | 0.0200 | 1.5 |"


def test_finished_runs_are_kept_and_failed_ones_are_reported(real: Path, tmp_path: Path) -> None:
    started: list[str] = []

    def run_both(tables: SplitPeople, directory: Path) -> RunFigures:
        started.append(directory.name)
        assert len(tables.people.labels) == 1200
        if "-1-" in directory.name and len(started) == 2:
            raise PartiesFailed("the passive party: no such file")
        return figures()

    study = TwoPartyStudy(real, tmp_path, run_both, 1, NoProgress())
    plan = Plan({NAME: None}, (0, 1))
    (result,) = study.results(plan)
    assert [seed.seed for seed in result.seeds] == [0]
    assert [failure.trial.seed for failure in study.failures] == [1]
    assert "the passive party: no such file" in str(study.failures[0])
    trials = sorted((tmp_path / "trials").iterdir())
    again = TwoPartyStudy(real, tmp_path, run_both, 1, NoProgress())
    (result,) = again.results(plan)
    assert [seed.seed for seed in result.seeds] == [0, 1]
    assert not again.failures
    assert [name.split("-")[1] for name in started] == ["0", "1", "1"]
    assert sorted((tmp_path / "trials").iterdir()) == trials
    facts = json.loads((tmp_path / "two-parties.json").read_text())
    assert facts["data_sets"][0]["seeds"][1]["run"]["auc"] == 0.7
    assert facts["agreement"]["test_table"]
    assert (tmp_path / "two-parties.md").read_text() == as_markdown([result])


def test_fewer_rows_are_another_run(real: Path, tmp_path: Path) -> None:
    started: list[str] = []

    def run_both(tables: SplitPeople, directory: Path) -> RunFigures:
        del tables
        started.append(directory.name)
        return figures()

    study = TwoPartyStudy(real, tmp_path, run_both, 1, NoProgress())
    (every,) = study.results(Plan({NAME: None}, (0,)))
    (fewer,) = study.results(Plan({NAME: 900}, (0,)))
    assert (every.rows, fewer.rows) == (1200, 900)
    assert len(set(started)) == 2


def test_a_party_that_fails_is_named_with_its_error(people: People, tmp_path: Path) -> None:
    trial = trial_of(METHODS["default"], 0)

    class WithoutTable(SplitPeople):
        def write(self, active: Path, passive: Path) -> None:
            SplitPeople.write(self, active, passive)
            passive.unlink()

    split = WithoutTable(people, trial.holdings(people.train))
    with pytest.raises(PartiesFailed, match=r"the passive party: .*partner\.parquet"):
        run_both_parties(split, tmp_path / "run")
    assert (tmp_path / "run" / "active.log").exists()


@pytest.mark.whole
def test_two_processes_and_both_baselines(tmp_path: Path) -> None:
    write_credit(tmp_path / "real", 6000)
    output = tmp_path / "output"
    study = TwoPartyStudy(tmp_path / "real", output, run_both_parties, 2, NoProgress())
    (result,) = study.results(Plan({NAME: None}, (0,)))
    assert not study.failures
    (seed,) = result.seeds
    assert seed.run.auc > seed.alone_auc > 0.5
    assert set(seed.run.seconds) == {"align", "train"}
    # Neither tables nor keys remain.
    assert [path.suffix for path in (output / "runs").iterdir()] == [".json"]


def test_the_data_sets_are_those_of_the_study_of_the_defaults() -> None:
    from florist.experiments.default_study import REAL_SETS  # noqa: PLC0415 - loads matplotlib

    assert DATA_SETS == REAL_SETS
