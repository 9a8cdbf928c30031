"""The simulated disk: what a power failure leaves."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from florist.common.core.errors import ConfigurationError
from florist.common.storage.files import FolderStorage
from tests.schedules.disk import SECTOR, Disk, DiskPatches, _real, survived

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    root = tmp_path / "disk"
    root.mkdir()
    found = Disk(root)
    found.settle()
    return found


def patches(disk: Disk) -> DiskPatches:
    return DiskPatches({"active": disk}, lambda _what, _disk: None, lambda _seconds: None)


def after_power_failures(disk: Disk, name: str, times: int = 40) -> set[bytes | None]:
    """Return what a file can contain after a power failure."""
    found = set()
    for seed in range(times):
        disk.crash(Random(seed))
        image = disk._image
        assert image is not None
        kept = image.contents.get(name)
        found.add(kept[1] if kept else None)
    return found


def test_what_is_synced_stays(disk: Disk) -> None:
    with patches(disk).installed():
        storage = FolderStorage(disk.root / "work")
        with storage.writing("set") as file:
            file.write(b"elements")
    assert after_power_failures(disk, "work/set") == {b"elements"}


def test_what_is_not_synced_may_be_lost(disk: Disk) -> None:
    with patches(disk).installed():
        with (disk.root / "set.part").open("wb") as file:
            file.write(b"elements")
        os.rename(disk.root / "set.part", disk.root / "set")  # noqa: PTH104 - the patched one
        handle = os.open(disk.root, os.O_RDONLY)
        os.fsync(handle)  # the name, not the content
        os.close(handle)
    found = after_power_failures(disk, "set")
    assert {b"", b"elements"} <= found
    assert None not in found


def test_a_name_that_is_not_synced_may_be_the_old_one(disk: Disk) -> None:
    with patches(disk).installed():
        with (disk.root / "old").open("wb") as file:
            file.write(b"elements")
            file.flush()
            os.fsync(file.fileno())
        handle = os.open(disk.root, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        os.replace(disk.root / "old", disk.root / "new")  # noqa: PTH105 - the patched one
    for seed in range(20):
        disk.crash(Random(seed))
        assert disk._image is not None
        assert len({"old", "new"} & set(disk._image.contents)) == 1  # never both or none
    assert after_power_failures(disk, "old") == {None, b"elements"}


def by_native_code(path: Path) -> int:
    """Create a file without the functions that are patched, and return its descriptor."""
    descriptor: int = _real["open"](path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, b"elements")
    return descriptor


def synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def test_a_file_of_native_code_is_on_disk_when_it_and_a_folder_are_synced(disk: Disk) -> None:
    with patches(disk).installed():
        (disk.root / "work").mkdir()
        descriptor = by_native_code(disk.root / "work" / "set")
        os.fsync(descriptor)
        os.close(descriptor)
        synced(disk.root)  # with it all earlier changes of names
    assert after_power_failures(disk, "work/set") == {b"elements"}


def test_a_folder_with_files_of_native_code_is_renamed_with_them(disk: Disk) -> None:
    with patches(disk).installed():
        (disk.root / "part").mkdir()
        os.close(by_native_code(disk.root / "part" / "set"))
        (disk.root / "part").rename(disk.root / "work")
        synced(disk.root)
    assert None not in after_power_failures(disk, "work/set")
    assert after_power_failures(disk, "part/set") == {None}


def test_a_killed_process_loses_nothing(disk: Disk) -> None:
    with patches(disk).installed(), (disk.root / "file").open("wb", buffering=0) as file:
        file.write(b"written")
        disk.crash(None)
        file.write(b" by a thread that is dead")
    disk.restore()
    assert (disk.root / "file").read_bytes() == b"written"


def test_sectors_are_written_as_a_whole() -> None:
    old, new = b"o" * (4 * SECTOR), b"n" * (4 * SECTOR)
    seen = {survived(old, new, Random(seed)) for seed in range(100)}
    assert {old, new} < seen
    for content in seen:
        sectors = {content[start : start + SECTOR] for start in range(0, len(content), SECTOR)}
        assert sectors <= {old[:SECTOR], new[:SECTOR]}


def test_a_full_disk_is_reported(disk: Disk) -> None:
    disk.faults.is_full = True
    storage = FolderStorage(disk.root / "work")
    with (
        patches(disk).installed(),
        pytest.raises(ConfigurationError, match="No space left"),
        storage.writing("set"),
    ):
        pass


def test_a_disk_that_loses_syncs(disk: Disk) -> None:
    disk.faults.loses_syncs = True
    with patches(disk).installed():
        storage = FolderStorage(disk.root / "work")
        with storage.writing("set") as file:
            file.write(b"elements")
    assert None in after_power_failures(disk, "work/set")
