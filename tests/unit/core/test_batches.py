"""Batches of a stream, against slices of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.batches import batched

if TYPE_CHECKING:
    from collections.abc import Iterator


@given(st.lists(st.integers() | st.none(), max_size=30), st.integers(1, 12))
def test_batches_are_slices(items: list[int | None], size: int) -> None:
    slices = [tuple(items[start : start + size]) for start in range(0, len(items), size)]
    assert list(batched(items, size)) == slices
    assert list(batched(iter(items), size)) == slices


def test_no_more_is_read_than_a_batch_needs() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            read.append(item)
            yield item

    batches = batched(items(), 3)
    assert read == []
    assert next(batches) == (0, 1, 2)
    assert read == [0, 1, 2]
    assert next(batches) == (3, 4, 5)
    assert read == [0, 1, 2, 3, 4, 5]
