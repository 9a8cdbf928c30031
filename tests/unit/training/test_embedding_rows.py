"""Embedding lookups: the kernels equal torch bit for bit, and refuse invalid input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from florist.common.training import embedding_rows
from florist.common.training.embedding_rows import embed, embed_by_torch, gather, sum_rows

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(name="native", scope="module")
def _native() -> ModuleType:
    if embedding_rows.native is None:
        pytest.skip("the kernels were not built")
    return embedding_rows.native


def drawn(
    sizes: list[int], rows: int, width: int, numeric: int
) -> tuple[nn.Embedding, Tensor, Tensor, Tensor]:
    draws = np.random.default_rng([rows, width, numeric, *sizes])
    table = nn.Embedding(sum(sizes), width)
    categories = torch.from_numpy(draws.integers(0, sizes, (rows, len(sizes))))
    numbers = torch.from_numpy(draws.random((rows, numeric), np.float32))
    return table, torch.tensor([0, *sizes]).cumsum(0), categories, numbers


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    rows=st.integers(0, 50),
    width=st.integers(1, 17),
    numeric=st.integers(0, 3),
    kind=st.sampled_from([torch.int32, torch.int64]),
)
def test_embeddings_and_gradients_equal_those_of_torch(
    sizes: list[int], rows: int, width: int, numeric: int, kind: torch.dtype
) -> None:
    table, starts, categories, numbers = drawn(sizes, rows, width, numeric)
    given_categories = categories.to(kind)
    results: list[tuple[Tensor, Tensor | None]] = []
    for function in (embed, embed_by_torch):
        table.zero_grad()
        output = function(table, starts, given_categories, numbers)
        upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
        output.backward(upstream)
        results.append((output.detach(), table.weight.grad))
    (ours, our_gradient), (theirs, their_gradient) = results
    assert torch.equal(ours, theirs)
    assert our_gradient is not None
    assert their_gradient is not None
    assert torch.equal(our_gradient, their_gradient)


@pytest.mark.parametrize("function", [embed, embed_by_torch])
@pytest.mark.parametrize(("column", "value"), [(0, 3), (1, 5), (0, -1), (1, 1 << 62)])
def test_a_category_beyond_its_column_is_refused(function: object, column: int, value: int) -> None:
    assert callable(function)
    table, starts, categories, numbers = drawn([3, 5], 4, 4, 2)
    categories[2, column] = value
    with pytest.raises(IndexError, match="out of its column's range"):
        function(table, starts, categories, numbers)


def test_the_wrong_number_of_columns_is_refused() -> None:
    table, starts, categories, numbers = drawn([3, 5], 4, 4, 2)
    with pytest.raises(ValueError, match="must have 2 columns"):
        embed(table, starts, categories[:, :1], numbers)


def test_narrow_tables_on_cpus_use_the_kernels(
    native: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []

    class Watched:
        scatter_add = native.scatter_add

        @staticmethod
        def gather(*arguments: object) -> None:
            called.append("gather")
            native.gather(*arguments)

    monkeypatch.setattr(embedding_rows, "native", Watched)
    embed(*drawn([3, 5], 4, 16, 2))
    assert called == ["gather"]
    embed(*drawn([3, 5], 4, 17, 2))
    table, starts, categories, numbers = drawn([3, 5], 4, 4, 2)
    embed(table.double(), starts, categories, numbers.double())
    assert called == ["gather"]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    rows=st.integers(0, 50),
    width=st.integers(1, 17),
)
def test_sparse_gradients_equal_dense_ones(sizes: list[int], rows: int, width: int) -> None:
    """They are bitwise equal, and the kernels return each row once."""
    table, starts, categories, numbers = drawn(sizes, rows, width, 2)
    gradients: list[Tensor | None] = []
    for sparse in (False, True):
        table.sparse = sparse
        table.zero_grad()
        output = embed(table, starts, categories, numbers)
        output.backward(torch.randn(output.shape, generator=torch.Generator().manual_seed(0)))
        gradients.append(table.weight.grad)
    dense, sparse_gradient = gradients
    assert dense is not None
    assert sparse_gradient is not None
    assert sparse_gradient.is_sparse
    if embedding_rows.native is not None and width <= 16:
        assert torch.equal(sparse_gradient.to_dense(), dense)
        found = sparse_gradient._indices()[0].tolist()
        assert len(found) == len(set(found))
    else:
        torch.testing.assert_close(sparse_gradient.to_dense(), dense)


def test_many_distinct_rows_are_summed(native: ModuleType) -> None:
    """There are so many rows that the hash index has long probe sequences."""
    draws = np.random.default_rng(5)
    categories = draws.integers(0, 300_000, (30_000, 2))
    rows = draws.standard_normal((30_000, 4)).astype(np.float32)
    found, sums = np.empty(60_000, np.int64), np.empty((60_000, 2), np.float32)
    starts = np.array([0, 300_000, 600_000])
    count = native.sum_rows(categories, starts, 2, rows, found, sums)
    expected = np.zeros((600_000, 2), np.float32)
    np.add.at(expected, (categories + starts[:-1]).ravel(), rows.reshape(-1, 2))
    assert count == len(np.unique(categories + starts[:-1]))
    assert np.array_equal(sums[:count], expected[found[:count]])


def test_missing_space_for_the_sums_is_refused(native: ModuleType) -> None:
    arguments = np.zeros((4, 2), np.int64), np.array([0, 3, 8]), 4, np.zeros((4, 8), np.float32)
    with pytest.raises(ValueError, match="too short"):
        native.sum_rows(*arguments, np.empty(7, np.int64), np.empty((8, 4), np.float32))
    with pytest.raises(ValueError, match="too short"):
        native.sum_rows(*arguments, np.empty(8, np.int64), np.empty((7, 4), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "a width"),
        ({"starts": np.array([0])}, "a column"),
        ({"starts": np.array([0, 5, 3])}, "ascend"),
        ({"starts": np.array([0, 2, 9])}, "another"),
        ({"starts": np.array([1, 3, 8])}, "begin with 0"),
        ({"table": np.zeros((8, 3), np.float32)}, "another"),
        ({"categories": np.zeros(7, np.int64)}, "whole number of rows"),
        ({"rows": np.zeros((4, 7), np.float32)}, "too short"),
        ({"rows": np.zeros(33, np.float32)}, "whole number of them"),
    ],
)
@pytest.mark.parametrize("name", ["gather", "scatter_add"])
def test_sizes_that_do_not_fit_are_refused(
    native: ModuleType, name: str, change: dict[str, object], message: str
) -> None:
    arguments: dict[str, object] = {
        "table": np.zeros((8, 4), np.float32),
        "categories": np.zeros((4, 2), np.int64),
        "starts": np.array([0, 3, 8]),
        "width": 4,
        "rows": np.zeros((4, 8), np.float32),
    }
    with pytest.raises(ValueError, match=message):
        getattr(native, name)(*(arguments | change).values())


@given(st.lists(st.integers(0, 9), max_size=40))
def test_sum_rows_adds_up_equal_rows(rows: list[int]) -> None:
    values = torch.arange(2 * len(rows), dtype=torch.float64).reshape(-1, 2)
    distinct, sums = sum_rows(torch.tensor(rows, dtype=torch.int64), values)
    expected = torch.zeros(10, 2, dtype=torch.float64).index_add_(
        0, torch.tensor(rows, dtype=torch.int64), values
    )
    assert distinct.tolist() == sorted(set(rows))
    assert torch.equal(sums, expected[distinct])


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_of_gathered_rows_are_summed_in_order(threads: int) -> None:
    """The result is bitwise that of adding one by one, with any number of threads."""
    generator = torch.Generator().manual_seed(3)
    table = nn.Embedding(50, 4)
    rows = torch.randint(50, (2000, 3), generator=generator)
    gradient = torch.randn(2000, 3, 4, generator=generator)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        gather(table, rows).backward(gradient)
    finally:
        torch.set_num_threads(before)
    expected = np.zeros((50, 4), np.float32)
    np.add.at(expected, rows.flatten().numpy(), gradient.reshape(-1, 4).numpy())
    assert table.weight.grad is not None
    assert np.array_equal(table.weight.grad.numpy(), expected)
