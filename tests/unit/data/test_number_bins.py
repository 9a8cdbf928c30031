"""Quantile bins: compared with a slow, obvious version, and the same for any parts of a table."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from florist.common.data.number_bins import MAX_ROWS, NumberBins, RowSample, fit_bins
from florist.common.data.preprocessing_fitter import PreprocessingFitter, fit_preprocessing
from florist.common.data.raw_table import RawTable
from florist.common.settings.data import PreprocessingSettings
from tests.support.tables import slow_edges

numbers = st.lists(
    st.none() | st.integers(-4, 4).map(float) | st.floats(allow_nan=False, allow_infinity=False),
    min_size=1,
    max_size=60,
)


def table(values: list[float | None]) -> RawTable:
    ids = pa.array([str(row) for row in range(len(values))])
    return RawTable.from_arrow("memory", ids, pa.table({"n": pa.array(values, pa.float64())}))


def slow_index(edges: list[float], value: float | None) -> int:
    return 0 if value is None else 1 + sum(value >= edge for edge in edges)


@settings(deadline=None)
@given(numbers, numbers, st.integers(1, 8))
def test_bins_match_the_slow_version(
    train: list[float | None], test: list[float | None], bins: int
) -> None:
    fitted = fit_preprocessing(table(train), PreprocessingSettings(bins=bins))
    edges = slow_edges(table(train), "n", bins)
    assert fitted.bins == (NumberBins(column="n", edges=edges),)
    assert fitted.cardinalities == (len(edges) + 2,)
    assert len(edges) < bins
    for values in (train, test):
        found = fitted.transform(table(values)).categories[:, 0]
        assert found.tolist() == [slow_index(edges, value) for value in values]


def test_bins_have_about_the_same_number_of_rows() -> None:
    values = np.random.default_rng(0).normal(size=10_000)
    bins = fit_bins("n", values, 16)
    counts = np.bincount(bins.indices(values), minlength=bins.cardinality)
    assert counts[0] == 0
    assert counts[1:].tolist() == [625] * 16


def test_a_frequent_value_has_a_bin_of_its_own() -> None:
    bins = fit_bins("n", np.array([0.0] * 900 + list(range(1, 101))), 10)
    assert bins.edges[0] == 1
    assert bins.indices(np.array([0.0, 0.5, 1.0])).tolist() == [1, 1, 2]


def test_missing_values_have_a_bin_of_their_own() -> None:
    bins = fit_bins("n", np.array([math.nan, 1.0, 2.0]), 4)
    assert bins.indices(np.array([math.nan, 1.0, 2.0, 9.0, -9.0])).tolist() == [0, 1, 2, 2, 1]
    only_missing = fit_bins("n", np.array([math.nan]), 4)
    assert only_missing.edges == []
    assert only_missing.indices(np.array([math.nan, 5.0])).tolist() == [0, 1]


def test_no_bins() -> None:
    fitted = fit_preprocessing(table([1.0, 2.0]), PreprocessingSettings(bins=0))
    assert fitted.bins == ()
    assert fitted.sizes == (1, 0)


def test_edges_must_ascend() -> None:
    with pytest.raises(ValidationError, match="edges must ascend"):
        NumberBins(column="n", edges=[1.0, 1.0])


# --- tables that are read in parts ---


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=10), st.integers(1, 64))
def test_the_parts_make_no_difference_to_the_sample(parts: list[int], limit: int) -> None:
    values = np.arange(float(sum(parts)))
    whole, in_parts = RowSample(limit), RowSample(limit)
    whole.add(len(values), {"n": values})
    start = 0
    for rows in parts:
        in_parts.add(rows, {"n": values[start : start + rows]})
        start += rows
    assert whole.values("n").tolist() == in_parts.values("n").tolist()
    assert len(whole.values("n")) <= limit
    if len(values) <= limit:
        assert whole.values("n").tolist() == values.tolist()


def test_a_sample_is_the_same_in_every_release() -> None:
    sample = RowSample(8)
    sample.add(40, {"n": np.arange(40.0)})
    assert sample.values("n").tolist() == [2, 4, 32, 33]


def test_columns_have_the_same_rows_and_can_be_forgotten() -> None:
    sample = RowSample(50)
    for start in range(0, 1000, 100):
        rows = np.arange(start, start + 100.0)
        sample.add(100, {"a": rows, "b": -rows})
    assert (sample.values("a") == -sample.values("b")).all()
    sample.forget(["a"])
    with pytest.raises(KeyError):
        sample.values("a")
    assert 20 <= len(sample.values("b")) <= 50


def test_quantiles_of_a_large_table_are_close() -> None:
    fitter = PreprocessingFitter(PreprocessingSettings(bins=8))
    parts = np.random.default_rng(1).exponential(size=(5, MAX_ROWS))
    for part in parts:
        fitter.add(table(part.tolist()))
    (bins,) = fitter.preprocessing(table([0.0]).features).bins
    shares = np.bincount(bins.indices(parts.ravel()), minlength=9)[1:] / parts.size
    assert shares == pytest.approx([1 / 8] * 8, abs=0.01)
