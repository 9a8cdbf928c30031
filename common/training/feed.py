"""Iterates over the batches of the schedule and prepares the next one in the background."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from florist.common.training.schedule import Schedule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Position:
    """A step of a run; `step` counts over all epochs."""

    epoch: int
    step: int
    step_in_epoch: int


class Feed(Generic[T]):
    """Batches in schedule order; a thread prepares the next one while the current one is used."""

    def __init__(
        self,
        schedule: Schedule,
        prepare: Callable[[Position, npt.NDArray[np.int64]], T],
    ) -> None:
        self._schedule = schedule
        self._prepare = prepare

    def from_step(self, first: int) -> Generator[tuple[Position, T]]:
        """Yield all steps, starting at `first`. Close the generator to end the thread.

        Closing does not wait: the thread may be waiting for the peer until the link fails.
        """
        positions = [self._position(step) for step in range(first, self._schedule.steps)]
        if not positions:
            return
        executor = ThreadPoolExecutor(1, thread_name_prefix="feed")
        try:
            prepared = executor.submit(self._make, positions[0])
            for position, next_position in zip(positions, [*positions[1:], None], strict=True):
                batch = prepared.result()
                if next_position is not None:
                    prepared = executor.submit(self._make, next_position)
                yield position, batch
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _position(self, step: int) -> Position:
        epoch, step_in_epoch = divmod(step, self._schedule.steps_per_epoch)
        return Position(epoch, step, step_in_epoch)

    def _make(self, position: Position) -> T:
        ranks = self._schedule.batch(position.epoch, position.step_in_epoch)
        return self._prepare(position, ranks.astype(np.int64, copy=False))
