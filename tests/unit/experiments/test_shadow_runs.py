"""The split of a shadow run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.experiments.shadow_runs import shadow_split


@given(st.integers(0, 500), st.integers(1, 300), st.integers(0, 300), st.integers(0, 300))
def test_all_rows_are_split_in_the_real_proportions(
    rows: int, both: int, ours: int, theirs: int
) -> None:
    union = both + ours + theirs
    split = shadow_split(rows, both + ours, both + theirs, union)
    assert np.array_equal(np.union1d(split.active, split.passive), np.arange(rows))
    for part, whole in (
        (len(split.active), both + ours),
        (len(split.passive), both + theirs),
        (len(np.intersect1d(split.active, split.passive)), both),
    ):
        assert part == pytest.approx(rows * whole / union, abs=1)


def test_the_split_depends_on_the_seed() -> None:
    first, again, other = (shadow_split(100, 60, 70, 90, seed).active for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("union", [59, 131])
def test_impossible_sizes_are_rejected(union: int) -> None:
    with pytest.raises(ValueError, match="no union"):
        shadow_split(100, 60, 70, union)
