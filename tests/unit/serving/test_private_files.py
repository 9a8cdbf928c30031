"""Files that only their owner may read: made once, kept, refused when others can read them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.serving.private_files import private_file

if TYPE_CHECKING:
    from pathlib import Path


def test_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    assert private_file(path, lambda: b"one") == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert private_file(path, lambda: b"two") == b"one"


def test_what_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    private_file(path, lambda: b"one")
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="others can read it; `chmod 600`"):
        private_file(path, lambda: b"two")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        private_file(tmp_path / "file" / "secret", lambda: b"one")
