"""Batches in the order of the schedule, prepared one batch ahead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from florist.common.training.schedule import Schedule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is: `step` counts over all epochs."""

    epoch: int
    step: int
    step_in_epoch: int


class Feed(Generic[T]):
    """Batches in the schedule's order, the next one prepared while the current is in use."""

    def __init__(
        self,
        schedule: Schedule,
        prepare: Callable[[Position, npt.NDArray[np.int64]], T],
    ) -> None:
        self._schedule = schedule
        self._prepare = prepare

    def from_step(self, first: int) -> Iterator[tuple[Position, T]]:
        """All steps from `first` on."""
        with ThreadPoolExecutor(1, thread_name_prefix="feed") as ahead:
            positions = [self._position(step) for step in range(first, self._schedule.steps)]
            if not positions:
                return
            coming = ahead.submit(self._make, positions[0])
            for position, following in zip(positions, [*positions[1:], None], strict=True):
                batch = coming.result()
                if following is not None:
                    coming = ahead.submit(self._make, following)
                yield position, batch

    def _position(self, step: int) -> Position:
        epoch, step_in_epoch = divmod(step, self._schedule.steps_per_epoch)
        return Position(epoch, step, step_in_epoch)

    def _make(self, position: Position) -> T:
        ranks = self._schedule.batch(position.epoch, position.step_in_epoch)
        return self._prepare(position, ranks.astype(np.int64, copy=False))
