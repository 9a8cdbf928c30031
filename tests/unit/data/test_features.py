"""Features: shapes, gathering of rows, and a repr without values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.data.features import Features


def features(rows: int, numeric: int = 2, categorical: int = 3) -> Features:
    numbers = np.arange(rows * numeric, dtype=np.float32).reshape(rows, numeric)
    indices = np.arange(rows * categorical, dtype=np.int32).reshape(rows, categorical)
    return Features(numbers, indices)


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 3), st.integers(0, 3), st.data())
def test_take_is_row_by_row(rows: int, numeric: int, categorical: int, data: st.DataObject) -> None:
    whole = features(rows, numeric, categorical)
    wanted = data.draw(st.lists(st.integers(0, rows - 1), max_size=30))
    chosen = whole.take(np.array(wanted, dtype=np.int64))
    assert len(chosen) == len(wanted)
    assert chosen.numeric.tolist() == [whole.numeric[row].tolist() for row in wanted]
    assert chosen.categories.tolist() == [whole.categories[row].tolist() for row in wanted]
    for array in (chosen.numeric, chosen.categories):
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_take_copies() -> None:
    whole = features(4)
    chosen = whole.take(np.arange(4))
    chosen.numeric[:] = -1
    assert whole.numeric.min() == 0


def test_repr_has_no_values() -> None:
    assert repr(features(4)) == "Features(4 rows, 2 numeric, 3 categorical)"


@pytest.mark.parametrize(
    ("numeric", "categories"),
    [
        (np.zeros((2, 1)), np.zeros((2, 1), np.int32)),
        (np.zeros((2, 1), np.float32), np.zeros((2, 1), np.int64)),
        (np.zeros((2, 1), np.float32), np.zeros((3, 1), np.int32)),
        (np.zeros(2, np.float32), np.zeros((2, 1), np.int32)),
        (np.zeros((2, 2), np.float32).T, np.zeros((2, 2), np.int32).T),
    ],
)
def test_other_arrays_are_rejected(numeric: np.ndarray, categories: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        Features(numeric, categories)
