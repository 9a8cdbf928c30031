"""An evaluation belongs to the model that it evaluated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from florist.common.session.evaluated_model import is_outdated
from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import StageState

if TYPE_CHECKING:
    from pathlib import Path

MODEL = {"run": "r1", "digest": "d1", "peer_digest": "p1"}


def write(folder: Path, name: str, facts: object) -> None:
    folder.mkdir()
    (folder / name).write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("evaluated", "outdated"),
    [
        ({"run": "r1", "model": ["d1", "p1"]}, False),
        ({"run": "r1", "model": ["d2", "p1"]}, True),
        ({"run": "r1", "model": ["d1", "p2"]}, True),
        ({"run": "r2", "model": ["d1", "p1"]}, True),
        ({"run": "r1"}, False),  # of an earlier release
        ({"run": "r2"}, True),
        ({}, True),
    ],
)
def test_an_evaluation_of_another_model_is_outdated(
    tmp_path: Path, evaluated: dict[str, Any], *, outdated: bool
) -> None:
    runs = RunDirectory(tmp_path)
    write(runs.training, "model.json", MODEL)
    write(runs.evaluation, "evaluation.json", evaluated)
    assert is_outdated(runs.training, runs.evaluation) is outdated
    assert StageState(runs, "evaluate").is_complete is not outdated
    assert StageState(runs, "train").is_complete


@pytest.mark.parametrize("damaged", ["model.json", "evaluation.json"])
@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_unreadable_files_are_reported_elsewhere(
    tmp_path: Path, damaged: str, content: str
) -> None:
    write(tmp_path / "training", "model.json", MODEL)
    write(tmp_path / "evaluation", "evaluation.json", {"run": "other"})
    next(tmp_path.rglob(damaged)).write_text(content)
    assert not is_outdated(tmp_path / "training", tmp_path / "evaluation")


def test_no_evaluation_is_not_outdated(tmp_path: Path) -> None:
    write(tmp_path / "training", "model.json", MODEL)
    assert not is_outdated(tmp_path / "training", tmp_path / "evaluation")
