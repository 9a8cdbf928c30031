"""Manifests notice every damage, and match their files whenever the process is killed."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.storage import manifest as module
from florist.common.storage.manifest import (
    MANIFEST,
    Damage,
    DamagedFile,
    ListedFolder,
    Manifest,
    damages,
    mark_deleted,
    private_content,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "one").write_bytes(b"first")
    (tmp_path / "sub" / "two").write_bytes(b"second")
    (tmp_path / ".pending").touch()
    write_manifest(tmp_path, unlisted=(".pending",))
    return tmp_path


def listed(path: Path) -> ListedFolder:
    return ListedFolder(path / "listed", "start over")


def test_a_manifest_lists_all_files(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert isinstance(manifest, Manifest)
    assert manifest.files.keys() == {"one", "sub/two"}
    assert stat.S_IMODE((folder / MANIFEST).stat().st_mode) == 0o600
    assert list(damages(folder)) == []
    (folder / "new").touch()
    assert list(damages(folder, ["new", "one"])) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"fiRst", "SHA-256"), (b"firs", "has 4 bytes, not 5"), (b"", "0 bytes"), (None, "missing")],
)
def test_damage_names_the_file(folder: Path, content: bytes | None, problem: str) -> None:
    path = folder / "one"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (found,) = damages(folder)
    assert found.path == path
    assert problem in found.problem
    error = found.error("align again")
    assert error.exit_code == 2
    assert str(error).startswith(f"{path} ")
    assert str(error).endswith("; align again")
    assert str(folder) not in error.for_peer
    assert list(damages(folder, ["sub/two"])) == []


def test_every_flipped_bit_of_the_manifest_itself_is_noticed(folder: Path) -> None:
    path = folder / MANIFEST
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        (found,) = damages(folder, ["one"])
        assert found.path == path
        path.write_bytes(content[:at])
        assert isinstance(read_manifest(folder), Damage)


def test_a_folder_of_an_earlier_release_has_no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / "one").write_bytes(b"other")
    assert list(damages(folder)) == []


def test_what_the_owner_deleted_is_not_damaged_but_not_readable(folder: Path) -> None:
    mark_deleted(folder, ["one", "unknown"])
    (folder / "one").unlink()
    assert list(damages(folder)) == []
    (found,) = damages(folder, ["one"])
    assert "florist purge" in found.problem


def test_files_are_replaced_and_verified(tmp_path: Path) -> None:
    files = listed(tmp_path)
    assert not files.exists("key")
    for content in (b"old", b"new"):
        files.write("key", content)
        files.write("other", b"kept")
        assert files.read("key") == content
    assert stat.S_IMODE((files.folder / "key").stat().st_mode) == 0o600
    (files.folder / "key").write_bytes(b"nEw")
    with pytest.raises(DamagedFile, match=r"key is damaged.*start over"):
        files.read("key")
    (files.folder / "key").unlink()
    assert files.exists("key")
    with pytest.raises(DamagedFile, match="key is missing; start over"):
        files.read("key")
    with pytest.raises(DamagedFile, match="missing"):
        private_content(files, "key", lambda: b"another")
    files.delete(["key"])
    assert files.read("other") == b"kept"
    files.delete(["other"])
    assert list(files.folder.iterdir()) == []


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    files = listed(tmp_path)
    assert private_content(files, "key", lambda: b"secret") == b"secret"
    assert private_content(files, "key", lambda: b"another") == b"secret"
    (files.folder / "key").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        private_content(files, "key", lambda: b"another")


@pytest.mark.parametrize("writes", range(7))
def test_files_match_their_manifest_after_a_kill_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Each replacement consists of three writes; the process is killed before one of them."""
    files, left = listed(tmp_path), writes
    replace = module._replace

    def write(path: Path, content: bytes) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        replace(path, content)

    monkeypatch.setattr(module, "_replace", write)
    try:
        files.write("key", b"old")
        files.write("key", b"new")
    except Killed:
        pass
    monkeypatch.undo()
    assert list(damages(files.folder)) == []
    expected = {0: None, 1: None, 5: b"new", 6: b"new"}.get(writes, b"old")
    assert (files.read("key") if files.exists("key") else None) == expected
    files.write("key", b"newest")
    assert files.read("key") == b"newest"
    assert list(damages(files.folder)) == []
