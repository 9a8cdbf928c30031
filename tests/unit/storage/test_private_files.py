"""Private files: created with access for the owner only, and secrets that others can read."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.storage.files import FolderStorage
from florist.common.storage.private_files import (
    make_private_folder,
    private_file,
    private_opener,
    restrict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    """Let new files and folders be accessible to everybody unless their mode says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_new_files_and_folders_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "folder")
    with open(tmp_path / "folder" / "file", "w", opener=private_opener) as file:
        file.write("content")
    assert mode(tmp_path / "folder") == 0o700
    assert mode(tmp_path / "folder" / "file") == 0o600


def test_folder_storage_is_private(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "work")
    with storage.writing("written") as file:
        file.write(b"content")
        assert [mode(path) for path in storage.folder.iterdir()] == [0o600]
    storage.append("appended", b"content")
    assert mode(storage.folder) == 0o700
    assert {path.name: mode(path) for path in storage.folder.iterdir()} == {
        "written": 0o600,
        "appended": 0o600,
    }


def test_restricting_a_tree(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "file").write_text("content")
    (tree / "read-only").write_text("content")
    (tree / "read-only").chmod(0o444)
    (tree / "link").symlink_to(outside)
    assert restrict(tree) == 4
    assert [mode(tree), mode(tree / "inner"), mode(tree / "inner" / "file")] == [
        0o700,
        0o700,
        0o600,
    ]
    assert mode(tree / "read-only") == 0o400
    assert mode(outside) == 0o666
    assert restrict(tree) == 0
    assert restrict(tmp_path / "missing") == 0


def test_created_once_with_access_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    assert private_file(path, lambda: b"one") == b"one"
    assert mode(path) == 0o600
    assert private_file(path, lambda: b"two") == b"one"


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    private_file(path, lambda: b"one")
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="other users can read it; run `chmod 600`"):
        private_file(path, lambda: b"two")


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        private_file(tmp_path / "file" / "secret", lambda: b"one")
