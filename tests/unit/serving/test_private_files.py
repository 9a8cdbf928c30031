"""Private files: created once, kept, and refused if other users can read them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.serving.private_files import private_file

if TYPE_CHECKING:
    from pathlib import Path


def test_created_once_with_access_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    assert private_file(path, lambda: b"one") == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
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
