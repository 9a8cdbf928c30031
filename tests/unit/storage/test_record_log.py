"""Records that were confirmed are there later, or the file is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.storage import record_log
from florist.common.storage.record_log import CONTENT_BYTES, DamagedRecords, RecordLog

if TYPE_CHECKING:
    from pathlib import Path

RECORD = 64


def content(number: int) -> bytes:
    return bytes([number + 1]) * CONTENT_BYTES


def written(path: Path, settled: int, more: int = 0) -> RecordLog:
    """Write records as a process that is killed: `settled` confirmed ones, and some more."""
    log = RecordLog(path)
    log.open(0)
    for number in range(settled + more):
        log.append(content(number))
        if number < settled:
            log.settle()
    return log


def test_records_are_read_again(tmp_path: Path) -> None:
    assert RecordLog(tmp_path / "log").read() == []
    written(tmp_path / "log", 3, 2)
    assert RecordLog(tmp_path / "log").read() == [content(number) for number in range(5)]


def test_more_than_the_reserved_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "_RESERVED", 3 * RECORD)
    written(tmp_path / "log", 0, 20)
    assert len(RecordLog(tmp_path / "log").read()) == 20


def test_records_are_added_behind_others(tmp_path: Path) -> None:
    written(tmp_path / "log", 1, 3)
    log = RecordLog(tmp_path / "log")
    log.open(2)
    log.append(content(9))
    log.settle()
    assert log.confirmed == 3
    log.close()
    assert RecordLog(tmp_path / "log").read() == [content(0), content(1), content(9)]


def test_what_was_never_confirmed_may_be_missing(tmp_path: Path) -> None:
    """A power failure may lose any of the last records, in any order."""
    path = tmp_path / "log"
    written(path, 2, 3)
    blank(path, 3)
    assert RecordLog(path).read() == [content(number) for number in range(3)]
    os.truncate(path, 2 * RECORD)
    assert len(RecordLog(path).read()) == 2


def blank(path: Path, number: int) -> None:
    stored = bytearray(path.read_bytes())
    stored[number * RECORD : (number + 1) * RECORD] = bytes(RECORD)
    path.write_bytes(stored)


@pytest.mark.parametrize("number", [0, 1])
def test_a_confirmed_record_must_not_be_missing(tmp_path: Path, number: int) -> None:
    written(tmp_path / "log", 2, 1)
    blank(tmp_path / "log", number)
    with pytest.raises(DamagedRecords):
        RecordLog(tmp_path / "log").read()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(position=st.integers(0, 5 * RECORD - 1), change=st.integers(1, 255))
def test_any_changed_byte_is_noticed(tmp_path: Path, position: int, change: int) -> None:
    path = tmp_path / "log"
    written(path, 3, 2)
    stored = bytearray(path.read_bytes())
    stored[position] ^= change
    path.write_bytes(stored)
    with pytest.raises(DamagedRecords):
        RecordLog(path).read()


@pytest.mark.parametrize("length", [1, 63, RECORD + 10])
def test_a_part_of_a_record_is_damage(tmp_path: Path, length: int) -> None:
    """A record does not cross a sector, so it is written completely or not at all."""
    written(tmp_path / "log", 2)
    os.truncate(tmp_path / "log", length)
    with pytest.raises(DamagedRecords):
        RecordLog(tmp_path / "log").read()


def test_a_full_disk_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is reserved before records are written, in part or not at all."""
    monkeypatch.setattr(record_log, "_RESERVED", RECORD)
    log = written(tmp_path / "log", 2)
    write = os.pwrite
    room = iter([40])

    def full(file: int, data: bytes, position: int) -> int:
        if (left := next(room, None)) is None:
            raise OSError(28, "No space left on device")
        return write(file, data[:left], position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        log.append(content(2))
    assert len(RecordLog(tmp_path / "log").read()) == 2
