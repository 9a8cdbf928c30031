"""The external sorter, against sorting whole arrays."""

from __future__ import annotations

import io
import tempfile
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.storage.external_sorter import rows_in_memory, rows_on_disk, sorting
from florist.common.storage.files import FolderStorage
from tests.support.memory_storage import MemoryStorage
from tests.support.row_streams import WIDTH, as_rows, as_values, block_sizes, rows, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO


@settings(max_examples=150, deadline=None)
@given(rows(), block_sizes, st.integers(1, 40))
def test_sorting_in_many_runs(values: list[bytes], sizes: list[int], capacity: int) -> None:
    room = capacity * (3 * WIDTH + 24)
    with sorting(MemoryStorage(), WIDTH, room, len(values)) as sorter:
        for block in stream(values, sizes):
            sorter.add(block)
        assert sorter.count == len(values)
        blocks = list(sorter.blocks())
    assert as_values(iter(blocks)) == sorted(values)


@pytest.mark.parametrize("expected", [0, 1, 1000, 50_000])
def test_a_sorter_stays_within_its_memory(tmp_path: Path, expected: int) -> None:
    """With many runs on disk, no block is larger than the memory allows, whatever was expected."""
    values = np.random.default_rng(1).integers(0, 256, (50_000, WIDTH), dtype=np.uint8)
    room = 200_000
    capacity = rows_in_memory(WIDTH, room)
    storage = FolderStorage(tmp_path / "work")
    with sorting(storage, WIDTH, room, expected) as sorter:
        for start in range(0, len(values), 777):
            sorter.add(values[start : start + 777])
        assert not list((tmp_path / "work").iterdir()), (
            "a run has a file name, and would be left behind"
        )
        blocks = list(sorter.blocks())
    assert max(map(len, blocks)) <= capacity
    assert len(blocks) < 3 * len(values) / capacity, "blocks are needlessly small"
    assert as_values(iter(blocks)) == sorted(row.tobytes() for row in values)


def test_memory_does_not_grow_with_the_rows() -> None:
    """Runs are merged before there are too many, so that their bookkeeping is bounded too."""
    room = 600_000
    peak = 0
    for count in (20_000, 2_000_000):  # the first run may also load modules
        numbers = np.random.default_rng(1)
        tracemalloc.start()
        with sorting(FileStorage(), WIDTH, room, count) as sorter:
            for _ in range(0, count, 1000):
                sorter.add(numbers.integers(0, 256, (1000, WIDTH), dtype=np.uint8))
            assert sum(map(len, sorter.blocks())) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1.3 * room


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30))
def test_disk_use_is_at_most_the_estimate(rows: int, capacity: int) -> None:
    storage = WatchedStorage()
    room = capacity * (3 * WIDTH + 24)
    values = np.random.default_rng(1).integers(0, 256, (rows, WIDTH), dtype=np.uint8)
    with sorting(storage, WIDTH, room, rows) as sorter:
        for start in range(0, rows, 77):
            sorter.add(values[start : start + 77])
        blocks = list(sorter.blocks())
    assert as_values(iter(blocks)) == sorted(row.tobytes() for row in values)
    assert storage.most <= rows_on_disk(WIDTH, room, rows) * WIDTH


class WatchedStorage(MemoryStorage):
    """Records the largest total size of its temporary files."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._open: list[io.BytesIO] = []

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        storage = self

        class Watched(io.BytesIO):
            def write(self, data: Any) -> int:  # noqa: ANN401 - same as the base class
                written = super().write(data)
                sizes = (len(file.getbuffer()) for file in storage._open)
                storage.most = max(storage.most, sum(sizes))
                return written

        with Watched() as file:
            self._open.append(file)
            yield file


class FileStorage(MemoryStorage):
    """Keeps its temporary files on disk."""

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile() as file:
            yield file


def test_rows_that_fit_are_sorted_in_memory(tmp_path: Path) -> None:
    with sorting(FolderStorage(tmp_path / "work"), WIDTH, 1 << 20, 3) as sorter:
        sorter.add(as_rows([b"c" * WIDTH, b"a" * WIDTH]))
        sorter.add(as_rows([b"b" * WIDTH]))
        assert as_values(sorter.blocks()) == [b"a" * WIDTH, b"b" * WIDTH, b"c" * WIDTH]
    assert not (tmp_path / "work").exists()


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    class Full(FolderStorage):
        @contextmanager
        def scratch(self) -> Iterator[BinaryIO]:
            with self.disk_errors(), open("/dev/full", "r+b", buffering=0) as file:  # noqa: PTH123
                yield file

    rows = np.zeros((100, WIDTH), dtype=np.uint8)
    with (
        pytest.raises(ConfigurationError, match=r"work.*No space left.*start again") as caught,
        sorting(Full(tmp_path / "work"), WIDTH, 500, 100) as sorter,
    ):
        sorter.add(rows)
    assert caught.value.will_reconnect, "the peer should wait"
