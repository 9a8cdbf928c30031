"""Rows of bytes, and streams of them in blocks, for tests of sorting and set operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

    from florist.common.storage.elements import Elements

WIDTH = 16


@st.composite
def rows(draw: st.DrawFn) -> list[bytes]:
    """Rows of which many share their first eight bytes, or are equal."""
    part = st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x80" + b"\0" * 7]) | st.binary(
        min_size=8, max_size=8
    )
    return draw(st.lists(st.builds(bytes.__add__, part, part), max_size=60))


def as_rows(values: list[bytes]) -> Elements:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, WIDTH)


def as_values(blocks: Iterator[Elements]) -> list[bytes]:
    return [row.tobytes() for block in blocks for row in block]


def stream(values: list[bytes], sizes: list[int]) -> Iterator[Elements]:
    """Yield the rows in blocks of these sizes, repeated; some may be empty."""
    whole, start, turn = as_rows(values), 0, 0
    while start < len(values):
        size = sizes[turn % len(sizes)]
        yield whole[start : start + size]
        start, turn = start + size, turn + 1


block_sizes = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)
