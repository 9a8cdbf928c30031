"""Both kinds of storage do the same; a file is there whole or not at all."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.core.errors import (
    ConfigurationError,
    InternalError,
    PeerLost,
    ProtocolViolation,
)
from florist.common.psu import limits, set_stream
from florist.common.psu.journal import MOST_STARTS, Journal, name_of
from florist.common.psu.limits import disk_needed, room_for_sorting
from florist.common.psu.stored_sets import SetFacts, StoredSet, arriving_set, writing_set
from florist.common.storage.files import FolderStorage, MemoryStorage
from florist.common.transport.messages import Step

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.storage.files import Storage

WIDTH = 32
ROWS = np.random.default_rng(1).integers(0, 256, (40, WIDTH), dtype=np.uint8)
STEP = Step.ACTIVE_FIRST_ROUND
LIMIT = 512_000_000


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return FolderStorage(tmp_path / "work") if request.param == "folder" else MemoryStorage()


def written(storage: Storage, name: str) -> StoredSet:
    with writing_set(storage, name) as writer:
        for start in range(0, len(ROWS), 7):
            writer.append(ROWS[start : start + 7])
    return StoredSet(storage, name, WIDTH, writer.tally.facts)


def test_a_set_is_read_as_it_was_written(storage: Storage) -> None:
    stored = written(storage, "x")
    assert len(stored) == len(ROWS)
    assert np.array_equal(np.concatenate(list(stored.chunks())), ROWS)
    assert stored.is_sound


def test_a_file_that_is_not_finished_is_not_there(storage: Storage) -> None:
    def broken_off() -> None:
        with writing_set(storage, "x") as writer:
            writer.append(ROWS[:3])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken_off()
    assert storage.size("x") is None
    written(storage, "x")
    with pytest.raises(RuntimeError):
        broken_off()
    assert storage.size("x") == ROWS.nbytes


def test_appending_and_clearing(storage: Storage) -> None:
    storage.append("log", b"ab")
    storage.append("log", b"cd")
    with storage.reading("log") as file:
        assert file.read() == b"abcd"
    storage.clear()
    assert storage.size("log") is None
    storage.clear()


def test_scratch_is_gone_afterwards(tmp_path: Path) -> None:
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
    storage.require(disk_needed(WIDTH, 1000, 1000, LIMIT))
    with pytest.raises(ConfigurationError, match="make room"):
        storage.require(disk_needed(WIDTH, 1000, 10**15, LIMIT))


def test_the_disk_for_the_ranks_is_counted() -> None:
    """If the peer's set is small, the sorts at the end are the largest."""
    kept = 10**6 * (4 * WIDTH + 8)
    assert disk_needed(WIDTH, 10**6, 0, LIMIT) == kept + 10**6 * (WIDTH + 8 + 16)
    # Where runs are so many that they are merged twice, their rows are there twice for a moment.
    equal = {size: disk_needed(WIDTH, size, size, LIMIT) / size for size in (10**7, 10**9)}
    assert equal[10**7] == 8 * WIDTH + 8 < equal[10**9] < 10 * WIDTH + 8


def test_memory_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "resident_bytes", lambda: 200_000_000)
    assert 2 * room_for_sorting(360_000_000) + 200_000_000 + limits.RESERVE == 360_000_000
    assert room_for_sorting(10**9) == 10**9 // 8
    assert 2 * room_for_sorting(256_000_000) == limits.LEAST


# --- the journal ---


def begun(storage: Storage, identity: bytes = b"\1") -> Journal:
    journal = Journal(storage, WIDTH, identity)
    journal.begin(b"\2" * 32, b"sealed", 7)
    return journal


def test_a_journal_is_found_again(storage: Storage) -> None:
    journal = begun(storage)
    facts = written(storage, name_of(STEP)).facts
    journal.check_received(Step.ACTIVE_FIRST_ROUND_BACK, facts)
    journal.finish(STEP, facts)
    journal.finish(Step.PASSIVE_HASHING, SetFacts(7, b""))

    again = Journal(storage, WIDTH, b"\1")
    assert (again.token, again.sealed, again.peer_size) == (b"\2" * 32, b"sealed", 7)
    assert again.drop_unsound()
    assert again.finished == [STEP, Step.PASSIVE_HASHING]
    assert again.stored_result(STEP).is_sound


def test_a_journal_of_another_union_is_none(storage: Storage) -> None:
    begun(storage)
    assert Journal(storage, WIDTH, b"\3").token == b""


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 9}'])
def test_a_damaged_journal_is_none(storage: Storage, damage: str) -> None:
    begun(storage)
    with storage.writing("journal.json") as file:
        file.write(damage.encode())
    assert Journal(storage, WIDTH, b"\1").token == b""


def test_a_set_that_was_changed_is_done_again(storage: Storage) -> None:
    journal = begun(storage)
    journal.finish(STEP, written(storage, name_of(STEP)).facts)
    with storage.writing(name_of(STEP)) as file:
        file.write(ROWS[::-1].tobytes())
    again = Journal(storage, WIDTH, b"\1")
    assert again.drop_unsound()
    assert again.finished == []


def test_without_its_ids_a_union_cannot_go_on(storage: Storage) -> None:
    journal = begun(storage)
    journal.keep_ids(written(storage, "ids").facts)
    with storage.writing("ids") as file:
        file.write(b"")
    assert not Journal(storage, WIDTH, b"\1").drop_unsound()


def test_what_the_peer_sent_once_it_must_send_again(storage: Storage) -> None:
    journal = begun(storage)
    journal.check_received(STEP, SetFacts(3, b"\7" * 32))
    journal.check_chunk(Step.PASSIVE_HASHING, 0, ROWS[:8])
    journal.check_chunk(Step.PASSIVE_HASHING, 1, ROWS[8:16])
    again = Journal(storage, WIDTH, b"\1")
    again.check_received(STEP, SetFacts(3, b"\7" * 32))
    again.check_chunk(Step.PASSIVE_HASHING, 0, ROWS[:8])
    again.check_chunk(Step.PASSIVE_HASHING, 1, ROWS[8:16])
    again.check_chunk(Step.PASSIVE_HASHING, 2, ROWS[16:])
    for other in (SetFacts(4, b"\7" * 32), SetFacts(3, b"\6" * 32)):
        with pytest.raises(ProtocolViolation, match="different elements before"):
            again.check_received(STEP, other)
    with pytest.raises(ProtocolViolation, match="different elements before"):
        again.check_chunk(Step.PASSIVE_HASHING, 1, ROWS[:8])


def test_beginning_anew_forgets_and_has_its_limit(storage: Storage) -> None:
    journal = begun(storage)
    for _ in range(MOST_STARTS - 1):
        journal.begin(b"\2" * 32, b"", 7)  # the peer had nothing: that does not count
    for _ in range(MOST_STARTS - 1):
        journal.check_received(STEP, SetFacts(3, b"\7" * 32))
        written(storage, name_of(STEP))
        journal.begin(b"\2" * 32, b"", 7)
        assert storage.size(name_of(STEP)) is None
        assert json.loads(_text(storage))["received"] == {}
    journal.check_received(STEP, SetFacts(3, b"\7" * 32))
    with pytest.raises(ConfigurationError, match="--force"):
        journal.begin(b"\2" * 32, b"", 7)


def _text(storage: Storage) -> bytes:
    with storage.reading("journal.json") as file:
        return file.read()


# -- sets that are read while they are written -----------------------------------------------------


def test_an_arriving_set_is_read_as_it_comes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", WIDTH * 3)
    rows = ROWS[:10]
    with arriving_set(storage, "ids", WIDTH, 10) as arriving, ThreadPoolExecutor(2) as readers:
        reading = [readers.submit(lambda: list(arriving.chunks())) for _ in range(2)]
        for start in range(0, 10, 4):
            assert not reading[0].done()
            arriving.append(rows[start : start + 4])
        facts = arriving.end()
        chunks = [each.result(timeout=10) for each in reading]
    assert [len(chunk) for chunk in chunks[0]] == [3, 3, 3, 1]
    for read in chunks:
        np.testing.assert_array_equal(np.concatenate(read), rows)
    stored = StoredSet(storage, "ids", WIDTH, facts)
    assert stored.is_sound
    np.testing.assert_array_equal(np.concatenate(list(stored.chunks())), rows)


def test_an_arriving_set_that_fails_keeps_nobody_waiting_and_stores_nothing(
    storage: Storage,
) -> None:
    with arriving_set(storage, "ids", WIDTH, 10) as arriving, ThreadPoolExecutor(1) as readers:
        reading = readers.submit(lambda: list(arriving.chunks()))
        arriving.append(np.zeros((3, WIDTH), dtype=np.uint8))
        with pytest.raises(InternalError, match="3 elements of 10"):
            arriving.end()
        arriving.fail(PeerLost("gone"))
        with pytest.raises(PeerLost, match="gone"):
            reading.result(timeout=10)
        with pytest.raises(PeerLost, match="gone"):
            arriving.append(np.zeros((7, WIDTH), dtype=np.uint8))
    assert storage.size("ids") is None


def test_whoever_waits_for_an_arriving_set_hears_that_something_else_failed(
    storage: Storage,
) -> None:
    lost = Event()

    def check() -> None:
        if lost.is_set():
            raise PeerLost("gone")

    with arriving_set(storage, "ids", WIDTH, 10) as arriving, ThreadPoolExecutor(1) as readers:
        arriving.watch(check)
        reading = readers.submit(lambda: list(arriving.chunks()))
        arriving.append(np.zeros((3, WIDTH), dtype=np.uint8))
        lost.set()
        with pytest.raises(PeerLost, match="gone"):
            reading.result(timeout=10)
