"""`florist purge` deletes what the retention table says, and nothing else."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from florist.cli.purge import describe_plan
from florist.cli.tool import app
from florist.common.core.errors import ConfigurationError
from florist.common.session.purge import plan_purge, purge
from florist.common.session.retention import ARTEFACTS, artefact_of
from florist.common.session.run_directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path

DELETED = {
    ".alignment-work/train/journal",
    ".training-x7f/half-written",
    "alignment/train/commitment.key",
    "alignment/train/ranks.parquet",
    "audit/view.safetensors",
    "checkpoints/step-3/state.safetensors",
    "evaluation-alignment/draws.key",
    "serving/http-token",
    "serving/secret",
}
KEPT = {
    "alignment/train/alignment.json",
    "alignment/train/commitment.json",
    "audit/audit.jsonl",
    "evaluation-alignment/answers.journal",
    "evaluation-alignment/begun",
    "evaluation/report.html",
    "evidence/align.json",
    "training/model.json",
    "training/preprocessing/preprocessing.json",
}
FOREIGN = {"notes.txt", "alignment/notes.txt"}


@pytest.fixture
def runs(tmp_path: Path) -> RunDirectory:
    path = tmp_path / "run"
    for name in {".lock"} | DELETED | KEPT | FOREIGN:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    return RunDirectory(path)


def left(runs: RunDirectory) -> set[str]:
    return {str(p.relative_to(runs.path)) for p in runs.path.rglob("*") if not p.is_dir()}


def test_secrets_and_working_files_are_deleted(runs: RunDirectory) -> None:
    plan = plan_purge(runs)
    assert {str(path.relative_to(runs.path)) for path, _ in plan.files} == DELETED
    assert {str(path.relative_to(runs.path)) for path in plan.foreign} == FOREIGN
    assert sum(len(paths) for _, paths in plan.by_artefact) == len(DELETED)
    purge(plan)
    assert left(runs) == KEPT | FOREIGN | {".lock"}
    assert not (runs.path / "checkpoints").exists()
    assert plan_purge(runs).files == ()


def test_everything_but_what_is_not_ours(runs: RunDirectory) -> None:
    purge(plan_purge(runs, everything=True))
    assert left(runs) == FOREIGN
    for name in FOREIGN:
        (runs.path / name).unlink()
    # Without a lock and folders of a run it is not a run directory any more.
    with pytest.raises(ConfigurationError, match="not a run directory"):
        plan_purge(runs, everything=True)


def test_a_whole_run(runs: RunDirectory) -> None:
    for name in FOREIGN:
        (runs.path / name).unlink()
    purge(plan_purge(runs, everything=True))
    assert not runs.path.exists()


def test_links_are_neither_followed_nor_deleted(runs: RunDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("keep")
    (runs.path / "checkpoints" / "linked").symlink_to(outside)
    (runs.path / "serving" / "secret").unlink()
    (runs.path / "serving" / "secret").symlink_to(outside / "secret")
    purge(plan_purge(runs, everything=True))
    assert (outside / "secret").read_text() == "keep"
    assert (runs.path / "checkpoints" / "linked").is_symlink()
    assert (runs.path / "serving" / "secret").is_symlink()


def test_other_folders_are_refused(tmp_path: Path, runs: RunDirectory) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / ".lock").touch()
    (tmp_path / "named" / "training").mkdir(parents=True)
    (tmp_path / "link").symlink_to(runs.path)
    for name in ("missing", "empty", "locked", "named", "link"):
        with pytest.raises(ConfigurationError, match=r"not a (folder|run directory)"):
            plan_purge(RunDirectory(tmp_path / name), everything=True)
    assert not (tmp_path / "missing").exists()


def test_a_run_in_progress_is_refused(runs: RunDirectory) -> None:
    plan = plan_purge(runs)
    with runs.locked():  # which removes what killed processes left
        before = left(runs)
        with pytest.raises(ConfigurationError, match="in use"):
            purge(plan)
    assert left(runs) == before


def test_the_plan_names_what_is_deleted_and_what_is_not(runs: RunDirectory) -> None:
    console = Console(width=200, file=StringIO())
    describe_plan(plan_purge(runs), console)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "commitment.key" in shown
    assert "notes.txt" in shown


def test_the_command_asks(runs: RunDirectory) -> None:
    def florist(*options: str, typed: str = "") -> tuple[int, str]:
        arguments = ["purge", str(runs.path), *options]
        result = CliRunner().invoke(app, arguments, input=typed, env={"COLUMNS": "200"})
        return result.exit_code, result.output

    before = left(runs)
    code, output = florist(typed="n\n")
    assert (code, left(runs)) == (1, before)
    assert "Delete these files?" in output
    assert florist(typed="")[0] == 1
    assert left(runs) == before
    assert florist(typed="y\n")[0] == 0
    assert left(runs) == KEPT | FOREIGN | {".lock"}
    code, output = florist("--yes")
    assert code == 0
    assert "nothing to delete" in output
    assert florist("--all", "--yes")[0] == 0
    assert left(runs) == FOREIGN


def test_each_file_belongs_to_one_artefact_and_the_rest_to_none() -> None:
    for name in DELETED | KEPT:
        artefact = artefact_of(name)
        assert artefact is not None
        assert (artefact.kind in {"secret", "working"}) == (name in DELETED)
    assert all(artefact_of(name) is None for name in FOREIGN)
    assert len({artefact.contents for artefact in ARTEFACTS}) == len(ARTEFACTS)
