"""Sets in storage: written in chunks, and readable while they are being written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import pytest

from florist.common.core.errors import (
    InternalError,
    PeerLost,
)
from florist.common.psu import set_stream
from florist.common.psu.stored_sets import StoredSet, arriving_set
from tests.support.storages import KINDS, ROWS, WIDTH, make_storage, written

if TYPE_CHECKING:
    from pathlib import Path

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
