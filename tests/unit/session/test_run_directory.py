"""Results are written as a whole or not at all, and finished results are never lost."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.session.alignment_result import (
    FORMAT,
    Alignment,
    AlignmentSummary,
    write_alignments,
)
from florist.common.session.run_directory import RunDirectory
from florist.common.session.union_sizes import UnionSizes

if TYPE_CHECKING:
    from pathlib import Path

SUMMARY = AlignmentSummary(
    format=FORMAT,
    release="0",
    role="active",
    party="bank",
    peer="telco",
    finished_at="2026-01-01T00:00:00+00:00",
    agreement={"group": "x25519", "union": {"privacy": None}},
    engine="cryptography",
    rows=3,
    table_fingerprint="00",
    own_dummies=0,
    sizes=UnionSizes(3, 4, 5),
    merging="active",
    union_sha256="ab",
    seconds={"union": 1.0},
    bytes_sent=1,
    bytes_received=2,
)
ALIGNMENT = Alignment(SUMMARY, np.array([4, 0, 2]))


def save(runs: RunDirectory, alignment: Alignment) -> None:
    with runs.finishing("align") as folder:
        write_alignments(folder, {"train": alignment})


def hidden(path: Path) -> list[str]:
    """What is left lying about."""
    return [p.name for p in path.iterdir() if p.name.startswith(".") and p.name != ".lock"]


def test_an_alignment_survives_saving_and_loading(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, ALIGNMENT)
    loaded = runs.load_alignment()
    assert loaded.summary == SUMMARY
    assert loaded.rank_of_row.tolist() == [4, 0, 2]
    assert loaded.rank_of_row.dtype == np.int64
    assert hidden(tmp_path) == []


def test_a_result_replaces_the_previous_one(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, ALIGNMENT)
    other = Alignment(replace(SUMMARY, rows=9), np.arange(3))
    save(runs, other)
    assert runs.load_alignment().summary.rows == 9
    assert hidden(tmp_path) == []


def test_a_failed_write_leaves_the_old_result_and_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, ALIGNMENT)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full_disk)
    with pytest.raises(ConfigurationError, match="No space left"):
        save(runs, replace_rows(7))
    assert runs.load_alignment().summary.rows == 3
    assert hidden(tmp_path) == []


def replace_rows(rows: int) -> Alignment:
    return Alignment(replace(SUMMARY, rows=rows), np.arange(3))


def test_the_directory_is_locked_for_one_process(tmp_path: Path) -> None:
    with (
        RunDirectory(tmp_path).locked(),
        pytest.raises(ConfigurationError, match="in use"),
        RunDirectory(tmp_path).locked(),
    ):
        pass
    with RunDirectory(tmp_path).locked():
        pass


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Unfinished results and replaced ones go; work to resume from stays, and the only result."""
    runs = RunDirectory(tmp_path / "run")
    left = (".alignment-abcdefgh", ".evaluation-alignment-abcdefgh", ".old-training-abcdefgh")
    kept = (".alignment-work", ".old-evaluation-abcdefgh", "training", "notes")
    for name in (*left, *kept):
        (runs.path / name).mkdir(parents=True)
    (runs.path / ".old-training-abcdefgh" / "training").mkdir()
    (runs.path / ".old-evaluation-abcdefgh" / "evaluation").mkdir()
    with runs.locked():
        assert {entry.name for entry in runs.path.iterdir() if entry.is_dir()} == set(kept)


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigurationError, match="run_directory"),
        RunDirectory(tmp_path / "file" / "run").locked(),
    ):
        pass


def test_a_missing_result_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--stage align"):
        RunDirectory(tmp_path).load_alignment()


def test_ranks_are_read_in_parts(tmp_path: Path) -> None:
    """They are written as they come, and read into memory when they are used."""
    parts = [np.array([4, 0]), np.array([], dtype=np.int64), np.array([2])]
    runs = RunDirectory(tmp_path)
    save(runs, Alignment(SUMMARY, lambda: iter(parts)))
    loaded = runs.load_alignment()
    assert [part.tolist() for part in loaded.rank_parts()] == [[4, 0, 2]]
    assert loaded.rank_of_row.tolist() == [4, 0, 2]
    assert loaded.rank_of_row is loaded.rank_of_row
    assert [part.tolist() for part in ALIGNMENT.rank_parts()] == [[4, 0, 2]]


def test_ranks_that_disappear_before_use_are_reported(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, ALIGNMENT)
    loaded = runs.load_alignment()
    (runs.alignment / "train/ranks.parquet").unlink()
    with pytest.raises(ConfigurationError, match="align again"):
        loaded.rank_of_row  # noqa: B018 - it reads


def test_an_alignment_without_rows(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, Alignment(SUMMARY, lambda: iter([])))
    assert runs.load_alignment().rank_of_row.tolist() == []


@pytest.mark.parametrize("damage", ["truncate", "format", "json", "union size", "ranks gone"])
def test_a_damaged_result_is_refused(tmp_path: Path, damage: str) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, ALIGNMENT)
    facts, ranks = runs.alignment / "train/alignment.json", runs.alignment / "train/ranks.parquet"
    match damage:
        case "truncate":
            ranks.write_bytes(ranks.read_bytes()[:-10])
        case "format":
            facts.write_text(json.dumps(json.loads(facts.read_text()) | {"format": 99}))
        case "json":
            facts.write_text("{")
        case "union size":
            changed = json.loads(facts.read_text())
            changed["sizes"]["union"] = 4
            facts.write_text(json.dumps(changed))
        case "ranks gone":
            ranks.unlink()
    with pytest.raises(ConfigurationError, match="align again"):
        runs.load_alignment()


def test_the_ranks_are_readable_by_other_tools(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path)
    save(runs, ALIGNMENT)
    assert pq.read_table(runs.alignment / "train/ranks.parquet").column_names == ["rank"]
    facts = json.loads((runs.alignment / "train/alignment.json").read_text())
    assert facts["sizes"]["union"] == 5


def test_access_of_others_is_withdrawn_when_a_run_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs of earlier releases have wider permissions."""
    old = [
        tmp_path / name for name in ("audit/audit.jsonl", ".training-work/part", "serving/secret")
    ]
    old.append(tmp_path / "notes.txt")
    for path in old:
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o755)
        path.write_text("content")
        path.chmod(0o644)
    with RunDirectory(tmp_path).locked():
        pass
    assert [stat.S_IMODE(path.stat().st_mode) for path in old] == [0o600, 0o600, 0o644, 0o644]
    assert [stat.S_IMODE(path.parent.stat().st_mode) for path in old[:2]] == [0o700, 0o700]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755  # the operator's own folder
    assert "withdrew other users' access to 4 files and folders" in caplog.text
    caplog.clear()
    with RunDirectory(tmp_path).locked():
        pass
    assert not caplog.records


def test_permissions_that_cannot_be_changed_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit").chmod(0o755)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(type(tmp_path), "chmod", refuse)
    with RunDirectory(tmp_path).locked():
        pass
    assert "cannot be changed: Operation not permitted; run `chmod -R go=` on it" in caplog.text


def test_an_evaluation_has_started_once_it_is_marked(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path)
    runs.evaluation_alignment.mkdir(mode=0o700)
    runs.evaluation_journal.touch()  # by a party that was killed before its first record
    before = runs.has_started_evaluation
    runs.mark_evaluation_started(2)
    assert (before, runs.has_started_evaluation) == (False, True)
    assert runs.journal_records() == 2
