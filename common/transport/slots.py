"""A limit on the number of concurrent requests."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from florist.common.transport.refusal import RefusalReason, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Slots:
    """A fixed number of slots without a queue: a request without a free slot is refused."""

    def __init__(self, count: int, what: str) -> None:
        self.count = count
        self._what = what
        self._taken = 0
        self._lock = Lock()

    @property
    def taken(self) -> int:
        return self._taken

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold one slot.

        Raises:
            RequestRefused: all slots are taken.
        """
        with self._lock:
            if self._taken >= self.count:
                raise RequestRefused(
                    RefusalReason.OVER_LIMIT,
                    f"the limit is {self.count} concurrent {self._what}",
                    1.0,
                )
            self._taken += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken -= 1
