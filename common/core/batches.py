"""Take several items of a stream at a time."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield the items in tuples of `size`; the last one may have fewer."""
    iterator = iter(items)
    while batch := tuple(islice(iterator, size)):
        yield batch
