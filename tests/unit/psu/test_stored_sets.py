"""Sets in storage: written in chunks, and readable while they are being written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from threading import enumerate as threads
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pytest

from florist.common.core.errors import ConfigurationError, InternalError, PeerLost
from florist.common.psu import set_stream
from florist.common.psu.stored_sets import StoredSet, arriving_set, spooled, temporary_set
from florist.common.storage.files import FolderStorage
from tests.support.storages import KINDS, ROWS, WIDTH, make_storage, written
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from florist.common.storage.elements import Elements
    from florist.common.storage.files import Storage


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return make_storage(request.param, tmp_path)


def test_a_set_is_read_as_it_was_written(storage: Storage) -> None:
    stored = written(storage, "x")
    assert len(stored) == len(ROWS)
    assert np.array_equal(np.concatenate(list(stored.chunks())), ROWS)
    assert stored.is_intact


def test_an_arriving_set_is_read_as_it_arrives(
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
    assert stored.is_intact
    np.testing.assert_array_equal(np.concatenate(list(stored.chunks())), rows)


def test_a_failed_arriving_set_wakes_its_readers_and_is_not_stored(
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


def test_readers_of_an_arriving_set_raise_the_failure_of_the_check(
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


# -- temporary sets --------------------------------------------------------------------------------


def test_a_temporary_set_is_read_any_number_of_times(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_stream, "CHUNK_BYTES", WIDTH * 3)
    with temporary_set(storage, WIDTH) as kept:
        assert list(kept.chunks()) == []
        for start in range(0, 10, 4):
            kept.append(ROWS[start : min(start + 4, 10)])
        for _ in range(2):
            chunks = list(kept.chunks())
            assert [len(chunk) for chunk in chunks] == [3, 3, 3, 1]
            np.testing.assert_array_equal(np.concatenate(chunks), ROWS[:10])


# -- chunks that are read without waiting for their consumer ---------------------------------------

SIZES = [7, 1, 20, 3, 9]


def chunks_of(sizes: list[int] = SIZES) -> Iterator[Elements]:
    start = 0
    for size in sizes:
        yield ROWS[start : start + size]
        start += size


def test_spooled_chunks_keep_their_order_and_sizes(storage: Storage) -> None:
    with spooled(chunks_of(), storage, WIDTH) as chunks:
        found = list(chunks)
    assert [len(chunk) for chunk in found] == SIZES
    np.testing.assert_array_equal(np.concatenate(found), ROWS)


def test_no_chunks_are_spooled_as_none(storage: Storage) -> None:
    with spooled(iter(()), storage, WIDTH) as chunks:
        assert list(chunks) == []


def test_the_producer_of_spooled_chunks_never_waits_for_the_consumer(storage: Storage) -> None:
    """All of 3,000 chunks are read before the first is consumed."""
    produced: list[int] = []

    def produce() -> Iterator[Elements]:
        for number in range(3000):
            produced.append(number)
            yield ROWS[number % 40 : number % 40 + 1]

    with spooled(produce(), storage, WIDTH) as chunks:
        wait_until(lambda: len(produced) == 3000, within=60)
        for number, chunk in enumerate(chunks):
            np.testing.assert_array_equal(chunk[0], ROWS[number % 40])
    assert number == 2999


def test_a_spooled_chunk_does_not_wait_for_the_next(storage: Storage) -> None:
    """The peer may wait for our answer to a chunk before it sends the next."""
    answered = Event()

    def produce() -> Iterator[Elements]:
        yield ROWS[:3]
        assert answered.wait(60)
        yield ROWS[3:4]

    with spooled(produce(), storage, WIDTH) as chunks:
        np.testing.assert_array_equal(next(chunks), ROWS[:3])
        answered.set()
        np.testing.assert_array_equal(next(chunks), ROWS[3:4])
        assert list(chunks) == []


def test_reading_and_writing_spooled_chunks_in_turn(storage: Storage) -> None:
    """Reads and writes are at different positions of one file."""
    steps = [Event() for _ in SIZES]

    def produce() -> Iterator[Elements]:
        for step, chunk in zip(steps, chunks_of(), strict=True):
            assert step.wait(60)
            yield chunk

    steps[0].set()
    steps[1].set()
    with spooled(produce(), storage, WIDTH) as chunks:
        for number, expected in enumerate(chunks_of()):
            np.testing.assert_array_equal(next(chunks), expected)
            if number + 2 < len(steps):
                steps[number + 2].set()


def test_an_error_of_the_producer_is_raised_at_its_position(storage: Storage) -> None:
    failed = Event()

    def produce() -> Iterator[Elements]:
        yield from chunks_of(SIZES[:3])
        failed.set()
        raise PeerLost("gone")

    with spooled(produce(), storage, WIDTH) as chunks:
        assert failed.wait(60)
        for expected in chunks_of(SIZES[:3]):
            np.testing.assert_array_equal(next(chunks), expected)
        with pytest.raises(PeerLost, match="gone"):
            next(chunks)


def test_a_full_disk_under_spooled_chunks_reaches_the_consumer(tmp_path: Path) -> None:
    class Full(FolderStorage):
        @contextmanager
        def scratch(self) -> Iterator[BinaryIO]:
            with self.disk_errors(), open("/dev/full", "r+b", buffering=0) as file:  # noqa: PTH123
                yield file

    storage = Full(tmp_path / "work")
    with (
        pytest.raises(ConfigurationError, match="No space left"),
        spooled(chunks_of(), storage, WIDTH) as chunks,
    ):
        next(chunks)


def test_spooling_that_ends_early_stops_the_producer(storage: Storage) -> None:
    before, go_on = set(threads()), Event()

    def produce() -> Iterator[Elements]:
        yield ROWS[:2]
        assert go_on.wait(60)
        while True:
            yield ROWS[2:4]

    with spooled(produce(), storage, WIDTH) as chunks:
        np.testing.assert_array_equal(next(chunks), ROWS[:2])
        (reader,) = (each for each in threads() if each not in before)
    go_on.set()
    reader.join(60)
    assert not reader.is_alive()
    assert list(chunks) == []
