"""Take several items of a stream at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`; the last one may have fewer.

    If the items end with an exception, it is raised after those before it were yielded.
    """
    iterator = iter(items)
    while True:
        batch: list[T] = []
        end: Exception | None = None
        while len(batch) < size and end is None:
            try:
                batch.append(next(iterator))
            except Exception as error:  # noqa: BLE001 - raised again below
                end = error
        if batch:
            yield batch
        if isinstance(end, StopIteration):
            return
        if end is not None:
            raise end
