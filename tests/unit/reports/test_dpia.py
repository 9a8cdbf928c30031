"""The draft of an impact assessment: what it fills in, and what it leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from florist.api.dpia import impact_assessment
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.settings.loader import load_config
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("parties"), QuickClicks())


def changed(workspace: Workspace, folder: Path, **agreement: object) -> str:
    """The assessment of the active party with other settings of `agreement.union`."""
    values = yaml.safe_load(workspace.config("active").read_text())
    values["agreement"].setdefault("union", {}).update(agreement)
    path = workspace.directory / f"{folder.name}.yml"
    path.write_text(yaml.safe_dump(values))
    return impact_assessment(load_config(path))


def test_it_is_filled_in_from_the_configuration(workspace: Workspace) -> None:
    active, passive = (
        impact_assessment(load_config(workspace.config(role))) for role in ("active", "passive")
    )
    assert "# Data protection impact assessment: bank with telco" in active
    assert "| this party | bank | active (has the labels) | **TODO:** |" in active
    assert "| this party | telco | passive (has features) | **TODO:** |" in passive
    assert "| click | label | **TODO:** |" in active
    assert "| person | ID, to align people; leaves encrypted only | **TODO:** |" in passive
    config = load_config(workspace.config("passive"))
    header, first = (
        line.replace('"', "").split(",")
        for line in config.data.train.path.read_text().splitlines()[:2]
    )
    assert len(header) > 3
    assert all(name.replace("_", r"\_") in passive for name in header)
    # Names of columns only: no value of any row.
    assert first[0] not in passive


def test_what_only_people_know_is_left_open(workspace: Workspace) -> None:
    text = impact_assessment(load_config(workspace.config("active")))
    for question in ("Purpose", "Legal basis", "Decision of the controller", "Opinion"):
        line = next(line for line in text.splitlines() if question in line and line[0] == "*")
        assert line.endswith("**TODO:**")


def test_the_guarantee(workspace: Workspace, tmp_path: Path) -> None:
    half = changed(workspace, tmp_path, privacy={"epsilon": 0.5, "delta": 1e-8})
    assert "ε = 0.5 and δ = 1e-08" in half
    # Those of the train, test and evaluation unions, and the people of the evaluation.
    assert "One run announces 4 sizes, which costs ε = 2, δ = 4e-08" in half
    assert "**None**" in changed(workspace, tmp_path, privacy=None)


def test_the_label_aggregate(workspace: Workspace, tmp_path: Path) -> None:
    active, passive = (load_config(workspace.config(role)) for role in ("active", "passive"))
    text = impact_assessment(active)
    assert "The label aggregate (if the union has at least 50,000 people) is (ε, δ)" in text
    assert "ε = 1, δ = 1e-07 for each person of the active party, this party." in text
    assert "| training | sums of labels by category, encrypted and noised, to the passive" in text
    assert "for each person of the active party, the peer." in impact_assessment(passive)
    values = yaml.safe_load(workspace.config("active").read_text())
    for privacy, expected in (
        ({"epsilon": 2.0, "delta": 1e-8}, "The label aggregate is (ε, δ)-differentially private"),
        (None, "There is no label aggregate."),
    ):
        values["agreement"].setdefault("training", {})["aggregate"] = {"privacy": privacy}
        path = workspace.directory / f"{tmp_path.name}-aggregate.yml"
        path.write_text(yaml.safe_dump(values))
        text = impact_assessment(load_config(path))
        assert expected in text
        assert ("sums of labels" in text) == (privacy is not None)


def test_a_table_that_is_not_here(workspace: Workspace, tmp_path: Path) -> None:
    values = yaml.safe_load(workspace.config("active").read_text())
    values["data"]["train"]["path"] = "missing.csv"
    path = workspace.directory / "missing.yml"
    path.write_text(yaml.safe_dump(values))
    assert "the file could not be read here" in impact_assessment(load_config(path))


def test_the_command_replaces_nothing(workspace: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "dpia.md"
    arguments = ["dpia", "--config", str(workspace.config("active")), "--output", str(output)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    text = output.read_text()
    output.write_text("mine")
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigurationError)
    assert output.read_text() == "mine"
    assert CliRunner().invoke(app, [*arguments, "--force"]).exit_code == 0
    assert output.read_text() == text
