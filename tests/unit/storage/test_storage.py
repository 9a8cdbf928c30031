"""Both kinds of storage behave alike; a file is stored completely or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.psu.limits import disk_needed
from florist.common.psu.stored_sets import writing_set
from florist.common.storage.files import FolderStorage
from tests.support.storages import KINDS, ROWS, WIDTH, make_storage, written

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.storage.files import Storage

LIMIT = 512_000_000


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return make_storage(request.param, tmp_path)


def test_an_unfinished_file_is_not_stored(storage: Storage) -> None:
    def interrupted() -> None:
        with writing_set(storage, "x") as writer:
            writer.append(ROWS[:3])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert storage.size("x") is None
    written(storage, "x")
    with pytest.raises(RuntimeError):
        interrupted()
    assert storage.size("x") == ROWS.nbytes


def test_appending_and_clearing(storage: Storage) -> None:
    storage.append("log", b"ab")
    storage.append("log", b"cd")
    with storage.reading("log") as file:
        assert file.read() == b"abcd"
    storage.clear()
    assert storage.size("log") is None
    storage.clear()


def test_a_temporary_file_has_no_name(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "work")
    with storage.scratch() as file:
        file.write(b"x")
        assert list((tmp_path / "work").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = FolderStorage(tmp_path / "file" / "work")
    with pytest.raises(ConfigurationError, match="file/work"):
        written(storage, "x")


def test_disk_is_checked_in_advance(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "work")
    storage.require_space(disk_needed(WIDTH, 1000, 1000, LIMIT))
    with pytest.raises(ConfigurationError, match="free space"):
        storage.require_space(disk_needed(WIDTH, 1000, 10**15, LIMIT))
