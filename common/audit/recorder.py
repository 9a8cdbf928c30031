"""What the peer sees of us, kept as it crosses our own link: of some UIDs, and of some batches.

UIDs that are followed are kept in all epochs, for what changes from one to the next; the last
batches before an audit, for what can be read from a batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from florist.common.transport.messages import EmbeddingBlock, GradientBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from florist.common.audit.view import Ranks, Rows
    from florist.common.training.blocks import Wire
    from florist.common.training.schedule import Schedule
    from florist.common.transport.messages import Control, Message

    Flags = npt.NDArray[np.bool_]

#: Rows from which an attack can read what is common to a batch.
ENOUGH = 1024


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sighting:
    """Rows of one step, or of some that follow each other, as the peer saw them."""

    #: The first one's, counted over all epochs.
    step: int
    epoch: int
    ranks: Ranks
    embeddings: Rows
    gradients: Rows

    def where(self, chosen: Flags) -> Sighting:
        return replace(
            self,
            ranks=self.ranks[chosen],
            embeddings=self.embeddings[chosen],
            gradients=self.gradients[chosen],
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The last batches before every `every`-th step: `rows` rows at most; none if `every` is 0."""

    every: int
    rows: int
    batch_size: int

    @property
    def batches(self) -> int:
        return min(max(self.rows // self.batch_size, 1), self.every)

    def holds(self, step: int) -> bool:
        """Whether the step, counted from 0, is one of the last before an audit."""
        return self.every > 0 and -(step + 1) % self.every < self.batches


class Recorder:
    """Looks at all messages of a run, and keeps the rows that an audit needs."""

    def __init__(
        self, schedule: Schedule, wire: Wire, followed: Flags, window: Window, first_step: int = 0
    ) -> None:
        self._schedule = schedule
        self._wire = wire
        self._followed = followed
        self._window = window
        self._lock = Lock()
        self._kept: list[Sighting] = []
        self._recent: deque[Sighting] = deque(maxlen=window.batches)
        self._begin(first_step, self._batch(first_step))

    def see(self, message: Message | Control) -> None:
        """Take what is needed of a message; whether it is as it should be is for others to check.

        Raises:
            ProtocolViolation: it holds what is no number.
        """
        if isinstance(message, EmbeddingBlock | GradientBlock):
            with self._lock:
                self._see(message)

    def recent(self) -> list[Sighting]:
        """The last batches, up to `Window.rows` rows."""
        with self._lock:
            return list(self._recent)

    def followed(self) -> list[Sighting]:
        """The UIDs that are followed, in order; those of one step, where these are enough."""
        with self._lock:
            return list(merged(self._kept, min(ENOUGH, self._schedule.batch_size)))

    def _see(self, block: EmbeddingBlock | GradientBlock) -> None:
        coming = self._coming[type(block)]
        rows, torn = divmod(len(block.values), self._wire.row_bytes)
        is_next = (block.step, block.start) == (self._step, coming.seen)
        if not is_next or torn or not 0 < rows <= len(self._ranks) - coming.seen:
            return
        sent = np.frombuffer(block.values, dtype=np.uint8).reshape(rows, -1)
        coming.rows.append(sent[self._chosen[coming.seen : coming.seen + rows]])
        coming.seen += rows
        if all(kind.seen == len(self._ranks) for kind in self._coming.values()):
            self._finish()

    def _finish(self) -> None:
        """A step is whole: every embedding has its gradient."""
        embeddings, gradients = self._decoded(EmbeddingBlock), self._decoded(GradientBlock)
        places = np.flatnonzero(self._chosen)
        epoch = self._step // self._schedule.steps_per_epoch
        sighting = Sighting(self._step, epoch, self._ranks[places], embeddings, gradients)
        if self._window.holds(self._step):
            self._recent.append(sighting.where(places < self._window.rows))
            sighting = sighting.where(self._followed[sighting.ranks])
        if len(sighting.ranks):
            self._kept.append(sighting)
        self._begin(self._step + 1, self._ahead)

    def _decoded(self, kind: type[EmbeddingBlock | GradientBlock]) -> Rows:
        rows = np.concatenate(self._coming[kind].rows)
        block = kind(self._step, 0, rows.tobytes())
        return self._wire.to_rows(block, self._step, 0, len(rows)).numpy()

    def _begin(self, step: int, ranks: Ranks) -> None:
        self._step = step
        self._ranks = ranks
        # One ahead, as the feed is: a schedule has the order of one epoch at a time.
        self._ahead = self._batch(step + 1)
        self._chosen = self._followed[ranks]
        if self._window.holds(step):
            self._chosen = self._chosen | (np.arange(len(ranks)) < self._window.rows)
        self._coming: dict[type[EmbeddingBlock | GradientBlock], _Coming] = {
            EmbeddingBlock: _Coming(),
            GradientBlock: _Coming(),
        }

    def _batch(self, step: int) -> Ranks:
        if step >= self._schedule.steps:
            return np.empty(0, dtype=np.int64)
        return self._schedule.batch(*divmod(step, self._schedule.steps_per_epoch))


@dataclass(slots=True)
class _Coming:
    """One kind of a step's blocks: rows that have come, and of these what is kept, as sent."""

    seen: int = 0
    rows: list[npt.NDArray[np.uint8]] = field(default_factory=list)


def merged(sightings: Iterable[Sighting], enough: int) -> Iterator[Sighting]:
    """Those of an epoch put together until they have `enough` rows.

    Of a few UIDs, each batch of a large union shows a handful, from which nothing can be read.
    """
    parts: list[Sighting] = []
    for sighting in sightings:
        if parts and parts[0].epoch != sighting.epoch:
            yield _together(parts)
            parts = []
        parts.append(sighting)
        if sum(len(part.ranks) for part in parts) >= enough:
            yield _together(parts)
            parts = []
    if parts:
        yield _together(parts)


def _together(parts: list[Sighting]) -> Sighting:
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        ranks=np.concatenate([part.ranks for part in parts]),
        embeddings=np.concatenate([part.embeddings for part in parts]),
        gradients=np.concatenate([part.gradients for part in parts]),
    )
