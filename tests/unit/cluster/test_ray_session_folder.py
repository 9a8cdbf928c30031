"""The folder of a local Ray cluster is private, short enough for sockets, and deleted."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from florist.common.cluster import ray_session_folder
from florist.common.cluster.ray_session_folder import MAX_PATH, PREFIX, session_folder
from florist.common.core.errors import ConfigurationError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_inside_a_folder_that_only_the_owner_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_session_folder, "MAX_PATH", 1000)
    runs = tmp_path / "run"
    with session_folder(runs) as folder:
        assert folder.parent.parent == runs
        assert (mode(runs), mode(folder.parent), mode(folder)) == (0o700, 0o700, 0o700)
        folder.chmod(0o777)  # as Ray does
        (folder / "session").mkdir()
        (folder / "session" / "log").write_text("line")
    assert list(runs.iterdir()) == []


def test_a_long_path_is_replaced_by_a_link(tmp_path: Path) -> None:
    runs = tmp_path / ("long" * 30)
    with session_folder(runs) as folder:
        assert len(str(folder)) <= MAX_PATH
        assert folder.is_symlink()
        assert mode(folder.parent) == 0o700
        target = folder.resolve()
        assert target.is_relative_to(runs)
        assert mode(target.parent) == 0o700
        (folder / "file").write_text("line")
    assert not folder.parent.exists()
    assert list(runs.iterdir()) == []


def test_the_limit_leaves_room_for_the_sockets() -> None:
    name = f"session_2026-11-17_20-21-31_577791_{2**22}"  # the largest process ID of Linux
    assert MAX_PATH + len(f"/{name}/sockets/plasma_store") <= 107
    assert len("/tmp/florist-12345678/ray") <= MAX_PATH


def test_there_is_no_place_for_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / ("long" * 30)
    runs.mkdir()
    made = tempfile.mkdtemp

    def mkdtemp(*, prefix: str, dir: str | Path) -> str:  # noqa: A002 - same as tempfile's
        if Path(dir) != runs:
            raise PermissionError
        return made(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with (
        pytest.raises(ConfigurationError, match=r"run_directory: .* too long .*TMPDIR"),
        session_folder(runs),
    ):
        pass
    assert list(runs.iterdir()) == []


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigurationError, match=r"run_directory: .*file/run: no folder"),
        session_folder(tmp_path / "file" / "run"),
    ):
        pass


def test_folders_of_killed_processes_are_deleted_and_others_kept(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}killed"
    (left / "ray" / "session").mkdir(parents=True)
    (tmp_path / "alignment").mkdir()
    with session_folder(tmp_path) as first:
        assert not left.exists()
        with session_folder(tmp_path) as second:
            assert first.exists()
            assert second != first
        assert first.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["alignment"]


def test_an_error_in_the_block_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no cluster"), session_folder(tmp_path / ("long" * 30)):
        raise OSError("no cluster")
