"""Tools that several attacks share, against slow and obvious versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from florist.common.audit.attack_tools.embedding_axes import main_axes, standardised_columns
from florist.common.audit.attack_tools.one_hot_features import LEAST, one_hot, one_hot_labels
from florist.common.audit.attack_tools.pass_windows import pass_windows, windows_of
from florist.common.audit.view import ActiveStep
from tests.unit.audit.views import active, own_features

Array = npt.NDArray[Any]


def test_categories_become_columns_and_rare_ones_are_merged() -> None:
    codes = np.repeat([0, 1, 2, 3, 4], [LEAST, 30, LEAST - 1, 40, 3])
    found = one_hot(own_features(np.zeros((len(codes), 0)), codes[:, None]), 100).toarray()
    groups = np.array(["a", "b", "rare", "c", "rare"])[codes]
    assert found.shape[1] == 4
    assert (found.sum(axis=1) == 1).all()
    for first in range(len(codes)):
        same = (found == found[first]).all(axis=1)
        assert np.array_equal(same, groups == groups[first])


def test_numbers_become_quantile_bins() -> None:
    values = np.random.default_rng(0).random(1600)[:, None]
    found = one_hot(own_features(values, np.zeros((1600, 0))), 100).toarray()
    assert found.shape[1] == 16
    assert found.sum(axis=0) == pytest.approx(np.full(16, 100), abs=1)
    order = np.argsort(values[:, 0])
    assert np.array_equal(found[order].argmax(axis=1), np.sort(found.argmax(axis=1)))


@pytest.mark.parametrize("most", [5, 12, 40])
def test_the_number_of_columns_is_limited(most: int) -> None:
    """The most frequent categories are kept."""
    random = np.random.default_rng(0)
    codes = np.minimum(random.geometric(0.05, size=(4000, 2)), 60)
    found = one_hot(own_features(np.zeros((4000, 0)), codes), most)
    assert found.shape[1] <= most
    assert (found.sum(axis=1) == 2).all()
    if most == 40:
        assert found.shape[1] > 30


def test_rows_without_features_have_no_columns() -> None:
    assert one_hot(own_features(np.zeros((9, 0)), np.zeros((9, 0))), 100).shape == (9, 0)
    assert one_hot(own_features(np.ones((9, 1)), np.zeros((9, 0))), 100).shape == (9, 1)


def test_labels_become_columns() -> None:
    found = one_hot_labels(np.array([1.0, np.nan, 0.0, 1.0])).toarray()
    assert found.tolist() == [[0, 1], [0, 0], [1, 0], [0, 1]]
    assert one_hot_labels(np.full(3, np.nan)).shape == (3, 0)


@given(st.lists(st.integers(1, 300), max_size=40), st.integers(1, 12), st.integers(1, 500))
def test_windows_partition_the_steps_in_order(sizes: list[int], count: int, least: int) -> None:
    steps = [
        ActiveStep(0, np.arange(size), np.zeros((size, 1), np.float32), np.zeros(size, np.float32))
        for size in sizes
    ]
    found = list(windows_of(steps, count, least))
    assert [step for window in found for step in window] == steps
    assert len(found) <= count
    assert all(found)
    if len(found) > 1:
        assert sum(sizes) / len(found) >= least


def test_epochs_have_separate_windows() -> None:
    view = active(np.ones((3, 900, 2)))
    found = list(pass_windows(view))
    assert [len({step.epoch for step in window}) for window in found] == [1] * 6


def test_axes_keep_the_most_variance() -> None:
    random = np.random.default_rng(0)
    rows = standardised_columns(random.normal(size=(500, 3)) @ random.normal(size=(3, 20)))
    found = main_axes(rows, 0, axes=3)
    assert (rows**2).sum() == pytest.approx((found**2).sum() * rows_scale(rows))
    assert main_axes(rows, 0, axes=5, whitened=True).std(axis=0)[:3] == pytest.approx(np.ones(3))
    # The data have three directions only.
    assert not main_axes(rows, 0, axes=5, whitened=True)[:, 3:].any()


def rows_scale(rows: Array) -> float:
    """Return the variance along the first axis."""
    return float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])


def test_columns_of_logits_come_first_and_stay_as_they_are() -> None:
    rows = standardised_columns(np.random.default_rng(0).normal(size=(500, 7)))
    found = main_axes(rows, 2, axes=3)
    assert found.shape == (500, 5)
    assert np.array_equal(found[:, :2], rows[:, 5:])


def test_constant_columns_become_zero() -> None:
    rows = np.column_stack([np.full(50, 3.7), np.arange(50.0)])
    found = standardised_columns(rows)
    assert not found[:, 0].any()
    assert found[:, 1].std() == pytest.approx(1)
    assert np.isfinite(main_axes(np.zeros((50, 4)), 1)).all()
