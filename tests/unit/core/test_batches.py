"""Batches of a stream, against slices of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.core.batches import batched

if TYPE_CHECKING:
    from collections.abc import Iterator


@given(st.lists(st.integers() | st.none(), max_size=30), st.integers(1, 12))
def test_batches_are_slices(items: list[int | None], size: int) -> None:
    slices = [items[start : start + size] for start in range(0, len(items), size)]
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
    assert next(batches) == [0, 1, 2]
    assert read == [0, 1, 2]
    assert next(batches) == [3, 4, 5]
    assert read == [0, 1, 2, 3, 4, 5]


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise ValueError("no more")

    batches = batched(items(), 3)
    assert next(batches) == [0, 1, 2]
    assert next(batches) == [3, 4]
    with pytest.raises(ValueError, match="no more"):
        next(batches)
