"""Looks up rows of embedding tables for a batch, and sums their gradients.

The embeddings of all categorical columns are in one table, column after column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

if TYPE_CHECKING:
    from types import ModuleType


def _load_kernels() -> ModuleType | None:
    try:
        from florist.common.training import _native  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return _native


#: Kernels in C, if they were built; without them everything works, but more slowly.
native = _load_kernels()

#: Largest embedding width for which the kernels are used. For wider embeddings torch copies rows
#: with all threads, and its overhead no longer matters.
_MAX_KERNEL_WIDTH = 16


def embed(table: nn.Embedding, starts: Tensor, categories: Tensor, numeric: Tensor) -> Tensor:
    """Return each row's embeddings, concatenated, followed by its numeric values.

    Args:
        table: the embeddings of all columns.
        starts: `(columns + 1,)`; category `k` of column `c` is row `starts[c] + k` of the table.
        categories: `(n, columns)` integers.
        numeric: `(n, k)`, with the table's dtype; `k` may be 0.

    Raises:
        IndexError: a category is out of its column's range.
    """
    if categories.shape[1:] != (len(starts) - 1,):
        raise ValueError(f"categories must have {len(starts) - 1} columns")
    if not _has_kernel(table, numeric):
        return embed_by_torch(table, starts, categories, numeric)
    function = _EmbedSparsely if table.sparse else _Embed
    rows: Tensor = function.apply(table.weight, starts, categories, numeric)  # type: ignore[no-untyped-call]
    return rows


def _has_kernel(table: nn.Embedding, numeric: Tensor) -> bool:
    return (
        native is not None
        and table.embedding_dim <= _MAX_KERNEL_WIDTH
        and table.weight.dtype == numeric.dtype == torch.float32
        and table.weight.device.type == "cpu"
    )


def embed_by_torch(
    table: nn.Embedding, starts: Tensor, categories: Tensor, numeric: Tensor
) -> Tensor:
    """Do what `embed` does, with torch alone."""
    # Torch would silently read the next column's rows.
    if bool(((categories < 0) | (categories >= starts.diff())).any()):
        raise IndexError("a category is out of its column's range")
    embedded = gather(table, categories + starts[:-1]).flatten(1)
    return torch.cat((embedded, numeric), dim=1) if numeric.shape[1] else embedded


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - untyped in torch
        table: Tensor,
        starts: Tensor,
        categories: Tensor,
        numeric: Tensor,
    ) -> Tensor:
        assert native is not None
        categories = categories.to(torch.int64).contiguous()
        ctx.save_for_backward(starts, categories)
        ctx.shape = table.shape
        width = table.shape[1] * categories.shape[1]
        rows = table.new_empty(len(categories), width + numeric.shape[1])
        native.gather(
            table.detach().numpy(), categories.numpy(), starts.numpy(), table.shape[1], rows.numpy()
        )
        rows[:, width:] = numeric
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        assert native is not None
        starts, categories = ctx.saved_tensors
        whole = gradient.new_zeros(ctx.shape)
        native.scatter_add(
            whole.numpy(),
            categories.numpy(),
            starts.numpy(),
            ctx.shape[1],
            gradient.contiguous().numpy(),
        )
        return whole, None, None, None


class _EmbedSparsely(_Embed):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        """Return a sparse gradient with each row of the batch once."""
        assert native is not None
        starts, categories = ctx.saved_tensors
        width = ctx.shape[1]
        found = torch.empty(categories.numel(), dtype=torch.int64)
        sums = gradient.new_empty(categories.numel(), width)
        count = native.sum_rows(
            categories.numpy(),
            starts.numpy(),
            width,
            gradient.contiguous().numpy(),
            found.numpy(),
            sums.numpy(),
        )
        sparse = torch.sparse_coo_tensor(
            found[None, :count], sums[:count], ctx.shape, check_invariants=False
        )
        return sparse, None, None, None


def gather(table: nn.Embedding, rows: Tensor) -> Tensor:
    """Return rows of the table. On CPUs the backward pass is several times as fast as torch's."""
    if table.sparse or rows.device.type != "cpu":
        embedded: Tensor = table(rows)
    else:
        embedded = _Gather.apply(table.weight, rows)  # type: ignore[no-untyped-call]
    return embedded


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:  # noqa: ANN401 - untyped in torch
        ctx.save_for_backward(rows)
        ctx.rows_of_table = len(table)
        return functional.embedding(rows, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (rows,) = ctx.saved_tensors
        width = gradient.shape[-1]
        whole = gradient.new_zeros(ctx.rows_of_table, width)
        # On CPUs this adds in row order, whatever the number of threads. (`index_add_` gives the
        # same result but checks the rows again, which takes 50% longer.)
        index = rows.reshape(-1, 1).expand(-1, width)
        return whole.scatter_add_(0, index, gradient.reshape(-1, width)), None


def sum_rows(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the values of equal rows, and return the distinct rows, ascending, with their sums.

    Each sum is computed in the order of `values`, whatever the number of threads.

    Args:
        rows: `(k,)` integers.
        values: `(k, width)`.
    """
    ascending, order = torch.sort(rows, stable=True)
    distinct, counts = torch.unique_consecutive(ascending, return_counts=True)
    starts = counts.cumsum(0) - counts
    return distinct, functional.embedding_bag(order, values, starts, mode="sum")
