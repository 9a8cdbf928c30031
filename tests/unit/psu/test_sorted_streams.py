"""Streams and the external sorter, against the same on whole arrays."""

from __future__ import annotations

import io
import tempfile
import tracemalloc
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.core.errors import ConfigurationError
from florist.common.psu.sorted_streams import (
    AscendingCheck,
    in_chunks,
    in_step,
    union_of,
    union_size,
)
from florist.common.storage.external_sorter import rows_in_room, rows_on_disk, sorting
from florist.common.storage.files import FolderStorage, MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from florist.common.storage.elements import Elements

WIDTH = 16


@st.composite
def rows(draw: st.DrawFn) -> list[bytes]:
    """Many rows that share their first eight bytes, or are the same."""
    part = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x80" + b"\0" * 7]) | st.binary(
        min_size=8, max_size=8
    )
    return draw(st.lists(st.builds(bytes.__add__, part, part), max_size=60))


def as_rows(values: list[bytes]) -> Elements:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, WIDTH)


def as_values(blocks: Iterator[Elements]) -> list[bytes]:
    return [row.tobytes() for block in blocks for row in block]


def stream(values: list[bytes], sizes: list[int]) -> Iterator[Elements]:
    """The rows in blocks of these sizes, again and again; some may be empty."""
    whole, start, turn = as_rows(values), 0, 0
    while start < len(values):
        size = sizes[turn % len(sizes)]
        yield whole[start : start + size]
        start, turn = start + size, turn + 1


block_sizes = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)


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
def test_a_sorter_keeps_to_its_room(tmp_path: Path, expected: int) -> None:
    """Many runs on disk: no block is larger than what the room allows, whatever was expected."""
    values = np.random.default_rng(1).integers(0, 256, (50_000, WIDTH), dtype=np.uint8)
    room = 200_000
    capacity = rows_in_room(WIDTH, room)
    storage = FolderStorage(tmp_path / "work")
    with sorting(storage, WIDTH, room, expected) as sorter:
        for start in range(0, len(values), 777):
            sorter.add(values[start : start + 777])
        assert not list((tmp_path / "work").iterdir()), "a run has a name, and would be left behind"
        blocks = list(sorter.blocks())
    assert max(map(len, blocks)) <= capacity
    assert len(blocks) < 3 * len(values) / capacity, "blocks are needlessly small"
    assert as_values(iter(blocks)) == sorted(row.tobytes() for row in values)


def test_memory_does_not_grow_with_the_rows() -> None:
    """Runs are merged before they are too many: also what is remembered of them has its limit."""
    room = 600_000
    peak = 0
    for rows in (20_000, 2_000_000):  # the first time, something else may be loaded
        numbers = np.random.default_rng(1)
        tracemalloc.start()
        with sorting(FileStorage(), WIDTH, room, rows) as sorter:
            for _ in range(0, rows, 1000):
                sorter.add(numbers.integers(0, 256, (1000, WIDTH), dtype=np.uint8))
            assert sum(map(len, sorter.blocks())) == rows
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1.3 * room


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_disk_that_sorting_takes_is_known(rows: int, capacity: int) -> None:
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
    """Remembers how much was in scratch files at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._open: list[io.BytesIO] = []

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        storage = self

        class Watched(io.BytesIO):
            def write(self, data: Any) -> int:  # noqa: ANN401 - as its parent
                written = super().write(data)
                sizes = (len(file.getbuffer()) for file in storage._open)
                storage.most = max(storage.most, sum(sizes))
                return written

        with Watched() as file:
            self._open.append(file)
            yield file


class FileStorage(MemoryStorage):
    """Whose scratch files are not in memory."""

    @contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        with tempfile.TemporaryFile() as file:
            yield file


def test_what_fits_is_sorted_without_the_disk(tmp_path: Path) -> None:
    with sorting(FolderStorage(tmp_path / "work"), WIDTH, 1 << 20, 3) as sorter:
        sorter.add(as_rows([b"c" * WIDTH, b"a" * WIDTH]))
        sorter.add(as_rows([b"b" * WIDTH]))
        assert as_values(sorter.blocks()) == [b"a" * WIDTH, b"b" * WIDTH, b"c" * WIDTH]
    assert not (tmp_path / "work").exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    class Full(FolderStorage):
        @contextmanager
        def scratch(self) -> Iterator[BinaryIO]:
            with self._told(), open("/dev/full", "r+b", buffering=0) as file:  # noqa: PTH123
                yield file

    rows = np.zeros((100, WIDTH), dtype=np.uint8)
    with (
        pytest.raises(ConfigurationError, match=r"work.*No space left.*start again") as caught,
        sorting(Full(tmp_path / "work"), WIDTH, 500, 100) as sorter,
    ):
        sorter.add(rows)
    assert caught.value.returns, "the peer is to wait"


@settings(max_examples=100, deadline=None)
@given(rows(), rows(), block_sizes, block_sizes)
def test_union_of_streams(
    first: list[bytes], second: list[bytes], sizes: list[int], other_sizes: list[int]
) -> None:
    a, b = sorted(set(first)), sorted({*second, *first[: len(first) // 2]})
    found = as_values(union_of(stream(a, sizes), stream(b, other_sizes), WIDTH))
    assert found == sorted({*a, *b})
    assert union_size(stream(a, sizes), stream(b, other_sizes), WIDTH) == len(found)


@settings(max_examples=100, deadline=None)
@given(rows(), rows(), block_sizes, block_sizes)
def test_streams_in_step_are_cut_at_the_same_rows(
    first: list[bytes], second: list[bytes], sizes: list[int], other_sizes: list[int]
) -> None:
    a, b = sorted(set(first)), sorted(set(second))
    pairs = [
        (as_values(iter([x])), as_values(iter([y])))
        for x, y in in_step(stream(a, sizes), stream(b, other_sizes), WIDTH)
    ]
    assert [row for pair in pairs for row in pair[0]] == a
    assert [row for pair in pairs for row in pair[1]] == b
    for earlier, later in pairwise(pairs):
        assert max([*earlier[0], *earlier[1]]) < min([*later[0], *later[1]])


@settings(max_examples=60, deadline=None)
@given(rows(), block_sizes, st.integers(1, 12))
def test_even_chunks(values: list[bytes], sizes: list[int], size: int) -> None:
    chunks = list(in_chunks(stream(values, sizes), size))
    assert as_values(iter(chunks)) == values
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert not chunks or 0 < len(chunks[-1]) <= size


@settings(max_examples=60, deadline=None)
@given(rows(), block_sizes, st.booleans())
def test_ascent(values: list[bytes], sizes: list[int], is_sorted: bool) -> None:  # noqa: FBT001
    values = sorted(set(values)) if is_sorted else values
    ascent = AscendingCheck()
    seen = [ascent.accepts(block) for block in stream(values, sizes)]
    assert all(seen) is (values == sorted(set(values)))
