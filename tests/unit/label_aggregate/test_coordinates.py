"""Tests of coordinates and label codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.label_aggregate import coordinates as module
from florist.common.label_aggregate.coordinates import Coordinates
from florist.common.label_aggregate.label_codes import LabelCodes, class_rates

COLUMNS = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(COLUMNS, st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_frequent_categories_have_a_coordinate_of_their_own(
    cardinalities: list[int], min_count: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    columns = [random.integers(0, size, 30) for size in cardinalities]
    categories = np.stack(columns, axis=1).astype(np.int32)
    found = Coordinates.of_table(categories, cardinalities, min_count)
    places = found.of(categories)
    assert places.min() >= 0
    assert places.max() < found.count
    for column, size in enumerate(cardinalities):
        others = np.delete(places, column, axis=1)
        assert not np.isin(places[:, column], others).any()
        for category in range(size):
            rows = categories[:, column] == category
            same = (
                categories[places[:, column] == places[rows, column][0], column]
                if any(rows)
                else []
            )
            if rows.sum() >= min_count:
                assert set(same) == {category}
            elif rows.any():
                # All others in the coordinate are rare as well.
                counts = np.bincount(categories[:, column], minlength=size)
                assert all(counts[each] < min_count for each in set(same))


def test_the_rarest_are_merged_if_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COORDINATES", 6)
    categories = np.repeat(np.arange(20), np.arange(1, 21))[:, None].astype(np.int32)
    found = Coordinates.of_table(categories, [20], 1)
    assert found.count <= 6
    assert found.of_category[19] != found.of_category[18] != found.of_category[0]
    assert len(set(found.of_category[:14].tolist())) == 1


@pytest.mark.parametrize(
    ("counts", "scale", "centres"),
    [
        ((500, 500), 2, (1,)),
        ((750, 250), 2, (1,)),
        ((990, 10), 64, (1,)),
        ((10, 990), 64, (63,)),
        ((800, 200), 64, (13,)),
        ((100, 100, 200), 64, (16, 32)),
        ((0, 0), 2, (1,)),
    ],
)
def test_centres_follow_the_class_frequencies(
    counts: tuple[int, ...], scale: int, centres: tuple[int, ...]
) -> None:
    assert LabelCodes.for_counts(counts) == LabelCodes(scale, centres)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=8))
def test_codes(counts: list[int]) -> None:
    codes = LabelCodes.for_counts(counts)
    table = codes.table()
    assert table.shape == (len(counts), len(counts) - 1)
    for label, code in enumerate(table):
        for output, number in enumerate(code, start=1):
            assert number == codes.scale * (label == output) - codes.centres[output - 1]
        assert (code**2).sum() <= codes.squared_norm
        assert np.abs(code).max() <= codes.largest


def test_rates_are_positive_and_add_up() -> None:
    rates = class_rates((0, 3, 7))
    assert min(rates) > 0
    assert sum(rates) == pytest.approx(1)
