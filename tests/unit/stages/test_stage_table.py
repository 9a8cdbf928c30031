"""Which stages a run of all stages includes, and what the table names."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, get_args

import pytest

from florist.common.session.run_directory import RunDirectory
from florist.common.session.stage_state import CHOICES, STAGES, StageName
from florist.common.settings.loader import load_config
from florist.common.stages.stage_table import STAGE_TABLE, incomplete_stages
from tests.support.parties import QuickClicks, Workspace

if TYPE_CHECKING:
    from pathlib import Path


def test_every_stage_is_in_the_table_under_its_name() -> None:
    assert tuple(STAGE_TABLE) == STAGES == get_args(StageName)
    assert {name: entry.load().name for name, entry in STAGE_TABLE.items()} == {
        name: name for name in STAGES
    }
    assert ("all", *STAGES, "serve") == CHOICES


LOAD_ALIGNMENT = """
import sys
import florist.active_party.role, florist.passive_party.role, florist.common.stages.run_stages
from florist.common.stages.stage_table import STAGE_TABLE
STAGE_TABLE["align"].load()
heavy = {"torch", "matplotlib", "pandas", "scipy", "sklearn", "uvicorn", "prometheus_client"}
print(*sorted(heavy & set(sys.modules)))
"""


def test_aligning_loads_no_heavy_library() -> None:
    command = [sys.executable, "-c", LOAD_ALIGNMENT]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == ""


@pytest.mark.parametrize(
    ("finished", "force", "expected"),
    [
        ([], False, ["align", "train", "evaluate"]),
        (["alignment"], False, ["train", "evaluate"]),
        (["alignment", "training"], False, ["evaluate"]),
        (["alignment", "training", "evaluation"], False, []),
        (["alignment", "training"], True, ["align", "train", "evaluate"]),
        (["alignment", "training/.pending"], False, ["train", "evaluate"]),
        (["alignment", "training", "evaluation/.pending"], False, ["evaluate"]),
    ],
)
def test_all_skips_complete_stages(
    tmp_path: Path,
    finished: list[str],
    force: bool,  # noqa: FBT001
    expected: list[str],
) -> None:
    workspace = Workspace.create(tmp_path, QuickClicks(people=100))
    config = load_config(workspace.config("active"))
    for name in finished:
        (config.run_directory / name).mkdir(parents=True)
    assert incomplete_stages(config, force=force) == expected


def test_all_without_an_evaluation_table_ends_with_training(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path)
    config = load_config(workspace.config("active"))
    assert incomplete_stages(config) == ["align", "train"]
    RunDirectory(config.run_directory).training.mkdir(parents=True)
    assert incomplete_stages(config) == ["align"]
