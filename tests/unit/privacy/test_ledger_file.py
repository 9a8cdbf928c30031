"""The file of the ledger: every change is detected, and a crash at any byte loses no charge."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.privacy.ledger_entries import Charge, Repair, Settlement
from florist.common.privacy.ledger_file import HEAD, KEY, LEDGER, LedgerFile, read_ledger

if TYPE_CHECKING:
    from pathlib import Path


def charge(number: int) -> Charge:
    return Charge(
        number=number,
        date="2026-01-01T00:00:00+00:00",
        table="train",
        set_digest="ab",
        own_size=10 * number,
        epsilon=1.0,
        delta=1e-9,
        agreement_digest="cd",
    )


def opened(folder: Path) -> LedgerFile:
    file = LedgerFile(folder)
    file.open("clinic", "bank")
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with three charges, of which the first has an outcome."""
    folder = tmp_path / "ledger"
    folder.mkdir()
    file = opened(folder)
    for number in (1, 2, 3):
        file.append(charge(number))
    file.append(Settlement(date="2026", charge=1, outcome="finished"))
    return folder


def test_entries_are_read_again(folder: Path) -> None:
    file = opened(folder)
    assert file.entries[1:4] == [charge(1), charge(2), charge(3)]
    file.append(charge(4))
    assert opened(folder).entries[-1] == charge(4)
    assert len(read_ledger(folder)[0].entries) == 6


def test_any_changed_byte_is_detected(folder: Path) -> None:
    path = folder / LEDGER
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        changed = bytes([data[place] ^ 1])
        path.write_bytes(data[:place] + changed + data[place + 1 :])
        with pytest.raises(ConfigurationError, match=r"ledger\.jsonl"):
            opened(folder)


@pytest.mark.parametrize("removed", [0, 1, 2, 3, 4])
def test_a_removed_line_is_detected(folder: Path, removed: int) -> None:
    path = folder / LEDGER
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:removed] + lines[removed + 1 :]))
    with pytest.raises(ConfigurationError, match=r"restore the folder from a backup"):
        opened(folder)


def test_lines_in_another_order_or_twice_are_detected(folder: Path) -> None:
    path = folder / LEDGER
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in ([*lines[:2], lines[3], lines[2], lines[4]], [*lines, lines[-1]]):
        path.write_bytes(b"".join(changed))
        with pytest.raises(ConfigurationError, match=r"line \d was changed"):
            opened(folder)


@pytest.mark.parametrize("name", [LEDGER, HEAD, KEY])
def test_a_missing_file_is_detected(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=name):
        opened(folder)


@pytest.mark.parametrize("head", ["", "[]", "{}", '{"entries": 1, "chain": "00"}', "[" * 50_000])
def test_a_damaged_head_is_detected(folder: Path, head: str) -> None:
    (folder / HEAD).write_text(head)
    with pytest.raises(ConfigurationError, match=r"ledger\.head"):
        opened(folder)


def test_another_key_is_detected(folder: Path) -> None:
    (folder / KEY).write_bytes(bytes(32))
    with pytest.raises(ConfigurationError, match="line 1 was changed"):
        opened(folder)
    (folder / KEY).chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users can read it"):
        opened(folder)


def test_a_ledger_of_others_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="the ledger of clinic with bank, not of clinic"):
        LedgerFile(folder).open("clinic", "insurer")


def test_a_crash_at_any_byte_of_an_entry(folder: Path, tmp_path: Path) -> None:
    """The charge whose `append` returned stays; an unfinished one is removed and recorded."""
    before, head = (folder / LEDGER).read_bytes(), (folder / HEAD).read_bytes()
    opened(folder).append(charge(4))
    whole = (folder / LEDGER).read_bytes()
    for length in range(len(before) + 1, len(whole), 5):
        crashed = tmp_path / str(length)
        shutil.copytree(folder, crashed)
        (crashed / LEDGER).write_bytes(whole[:length])
        (crashed / HEAD).write_bytes(head)
        entries = opened(crashed).entries
        assert entries[1:4] == [charge(1), charge(2), charge(3)]
        last = entries[-1]
        assert isinstance(last, Repair)
        assert last.removed_bytes == length - len(before)
        assert opened(crashed).entries == entries


def test_a_crash_before_the_head_keeps_the_charge(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = (folder / HEAD).read_bytes()
    opened(folder).append(charge(4))
    (folder / HEAD).write_bytes(head)
    assert opened(folder).entries[-1] == charge(4)
    assert "it counts" in caplog.text
    assert json.loads((folder / HEAD).read_bytes())["entries"] == 6


def test_a_finished_charge_cannot_be_passed_off_as_a_crash(folder: Path) -> None:
    """The head knows of it, so cutting off its last bytes is not repaired."""
    path = folder / LEDGER
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigurationError, match="some were removed or changed"):
        opened(folder)


@pytest.mark.parametrize("name", [HEAD, KEY, LEDGER])
def test_a_crash_while_the_ledger_is_created(tmp_path: Path, name: str) -> None:
    opened(tmp_path)
    (tmp_path / HEAD).unlink()
    if name != HEAD:
        (tmp_path / LEDGER).unlink()
    if name == KEY:
        (tmp_path / KEY).write_bytes(b"")
    file = opened(tmp_path)
    file.append(charge(1))
    assert opened(tmp_path).entries[-1] == charge(1)


def test_a_full_disk_is_reported_before_anything_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(folder)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("florist.common.privacy.ledger_file.os.fsync", fail)
        with pytest.raises(ConfigurationError, match=r"ledger\.jsonl: cannot be written: No space"):
            file.append(charge(4))
    file.append(charge(5))
    assert opened(folder).entries[-2:] == [
        Settlement(date="2026", charge=1, outcome="finished"),
        charge(5),
    ]


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=60), st.integers(0, 600))
def test_any_bytes_are_refused_or_repaired(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    file = opened(folder)
    file.append(charge(1))
    data = (folder / LEDGER).read_bytes()
    place = min(place, len(data))
    (folder / LEDGER).write_bytes(data[:place] + noise + data[place:])
    try:
        entries = opened(folder).entries
    except ConfigurationError:
        return
    assert entries[1] == charge(1)
