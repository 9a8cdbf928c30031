"""Micro-batches cover all rows in order; those of a pipeline start and end small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from florist.common.training.micro_batches import micro_batches, pipelined_micro_batches


@given(st.integers(0, 200), st.integers(1, 50))
def test_micro_batches_cover_all_rows_in_order(rows: int, size: int) -> None:
    parts = [range(rows)[part] for part in micro_batches(rows, size)]
    assert [row for part in parts for row in part] == list(range(rows))
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts)


@given(st.integers(0, 200), st.integers(1, 50))
def test_the_first_and_last_pipelined_micro_batches_are_smaller(rows: int, size: int) -> None:
    parts = [range(rows)[part] for part in pipelined_micro_batches(rows, size)]
    assert [row for part in parts for row in part] == list(range(rows))
    assert all(0 < len(part) <= size for part in parts)
    if rows > size > 1:
        assert len(parts[0]) == size // 2
        assert all(len(part) == size for part in parts[1:-1])
    if rows > size and rows % size == 0:
        assert len(parts[-1]) == size - max(1, size // 2) or size == 1
