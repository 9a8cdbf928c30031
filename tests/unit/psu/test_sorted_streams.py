"""Set operations on streams, against the same on whole arrays."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.psu.sorted_streams import (
    AscendingCheck,
    difference_of,
    in_chunks,
    in_step,
    union_of,
    union_size,
)
from tests.support.row_streams import WIDTH, as_values, block_sizes, rows, stream


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
def test_difference_of_streams(
    first: list[bytes], second: list[bytes], sizes: list[int], other_sizes: list[int]
) -> None:
    a, b = sorted(set(first)), sorted({*second, *first[: len(first) // 2]})
    found = list(difference_of(stream(a, sizes), stream(b, other_sizes), WIDTH))
    assert as_values(iter(found)) == sorted({*a} - {*b})


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
def test_ascending_check(values: list[bytes], sizes: list[int], is_sorted: bool) -> None:  # noqa: FBT001
    values = sorted(set(values)) if is_sorted else values
    check = AscendingCheck()
    seen = [check.accepts(block) for block in stream(values, sizes)]
    assert all(seen) is (values == sorted(set(values)))
