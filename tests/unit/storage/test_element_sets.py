from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.storage import element_sets
from tests.unit.groups.oracles import rows_of

if TYPE_CHECKING:
    from florist.common.storage.elements import Elements

WIDTHS = (32, 256)


@st.composite
def rows(draw: st.DrawFn, width: int) -> list[bytes]:
    """Rows with few different bytes: many share prefixes, repeat, or end in zeros."""
    part = st.binary(max_size=2) | st.sampled_from([b"", b"\0", b"\xff", b"\x80", b"\x7f"])
    row = st.builds(
        lambda fill, start, end: (start + bytes([fill]) * width)[: width - len(end)] + end,
        st.sampled_from([0, 1, 255]),
        part,
        part,
    )
    return draw(st.lists(row, max_size=40))


@st.composite
def two_lists(draw: st.DrawFn) -> tuple[int, list[bytes], list[bytes]]:
    width = draw(st.sampled_from(WIDTHS))
    first, second = draw(rows(width)), draw(rows(width))
    shared = draw(st.lists(st.sampled_from(first), max_size=10)) if first else []
    return width, first, second + shared


def as_list(elements: Elements) -> list[bytes]:
    return [row.tobytes() for row in elements]


@settings(max_examples=60, deadline=None)
@given(two_lists())
def test_sorted_set(case: tuple[int, list[bytes], list[bytes]]) -> None:
    width, values, _ = case
    elements = rows_of(values, width)
    assert as_list(element_sets.sorted_set(elements)) == sorted(values)
    assert as_list(elements) == values


@settings(max_examples=60, deadline=None)
@given(two_lists())
def test_is_strictly_increasing(case: tuple[int, list[bytes], list[bytes]]) -> None:
    width, values, _ = case
    for candidate in (values, sorted(values), sorted(set(values)), sorted(set(values))[::-1]):
        expected = all(a < b for a, b in pairwise(candidate))
        assert element_sets.is_strictly_increasing(rows_of(candidate, width)) is expected


@settings(max_examples=60, deadline=None)
@given(two_lists())
def test_union_and_intersection(case: tuple[int, list[bytes], list[bytes]]) -> None:
    width, first, second = case
    a, b = (rows_of(sorted(set(values)), width) for values in (first, second))
    assert as_list(element_sets.union(a, b)) == sorted({*first, *second})
    assert element_sets.intersection_size(a, b) == len({*first} & {*second})


@settings(max_examples=60, deadline=None)
@given(two_lists())
def test_find_rows(case: tuple[int, list[bytes], list[bytes]]) -> None:
    width, first, second = case
    universe = sorted(set(first))
    found = element_sets.find_rows(rows_of(universe, width), rows_of(second, width))
    assert found.dtype == np.int64
    assert found.tolist() == [universe.index(x) if x in universe else -1 for x in second]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shared", [0, 7, 8, 9, 31])
def test_many_rows(width: int, shared: int) -> None:
    """All rows share their first `shared` bytes, as a malicious peer might choose them."""
    random = np.random.default_rng(width + shared)
    elements = random.integers(0, 256, (5000, width), dtype=np.uint8)
    elements[:, :shared] = 0x5A
    values = as_list(elements)
    ordered = element_sets.sorted_set(elements)
    assert as_list(ordered) == sorted(values)

    distinct = rows_of(sorted(set(values)), width)
    assert element_sets.is_strictly_increasing(distinct)
    half = distinct[::2].copy()
    np.testing.assert_array_equal(element_sets.union(distinct, half), distinct)
    assert element_sets.intersection_size(distinct, half) == len(half)
    index = {row: i for i, row in enumerate(as_list(half))}
    assert element_sets.find_rows(half, elements).tolist() == [index.get(x, -1) for x in values]


def test_read_only_rows() -> None:
    elements = np.frombuffer(bytes(range(64)), np.uint8).reshape(2, 32)
    assert element_sets.is_strictly_increasing(elements)
    np.testing.assert_array_equal(element_sets.sorted_set(elements[::-1].copy()), elements)
    np.testing.assert_array_equal(element_sets.union(elements, elements), elements)


@settings(max_examples=60, deadline=None)
@given(two_lists())
def test_merged_and_rows_up_to(case: tuple[int, list[bytes], list[bytes]]) -> None:
    width, first, second = case
    parts = [rows_of(sorted(values), width) for values in (first, second, first)]
    whole = element_sets.merged(parts)
    assert as_list(whole) == sorted(first + second + first)
    for bound in {*first, *second}:
        expected = sum(row <= bound for row in as_list(whole))
        assert element_sets.rows_up_to(whole, bound) == expected
        by_half = sum(row[: width // 2] <= bound[: width // 2] for row in as_list(whole))
        assert element_sets.rows_up_to(whole, bound[: width // 2]) == by_half
