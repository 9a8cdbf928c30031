"""Records what the peer sees of us, from the messages on our own link.

A sample of UIDs is followed through all epochs, for attacks that compare epochs. The last batches
before an audit are kept whole, for attacks on single batches, and so are the first batches of the
run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.training_windows import EARLY_STEPS, early_rows
from florist.common.transport.messages import EmbeddingBlock, GradientBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from florist.common.audit.training_windows import TrainingWindow
    from florist.common.audit.view import Ranks, Rows
    from florist.common.training.row_codec import RowCodec
    from florist.common.training.schedule import Schedule
    from florist.common.transport.messages import Control, Message

    Flags = npt.NDArray[np.bool_]

#: The number of rows from which an attack can estimate what a batch has in common.
ENOUGH = 1024


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sighting:
    """Rows of one step, or of several consecutive steps, as the peer saw them."""

    #: The first step, counted over all epochs.
    step: int
    epoch: int
    ranks: Ranks
    embeddings: Rows
    gradients: Rows

    def where(self, chosen: Flags) -> Sighting:
        """Return the chosen rows only."""
        return replace(
            self,
            ranks=self.ranks[chosen],
            embeddings=self.embeddings[chosen],
            gradients=self.gradients[chosen],
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The last batches before every `every`-th step, with at most `rows` rows in all.

    The window is empty if `every` is 0. Windows of the first batches have about `rows` rows too.
    """

    every: int
    rows: int
    batch_size: int

    @property
    def batches(self) -> int:
        """The number of batches that the window holds."""
        return min(max(self.rows // self.batch_size, 1), self.every)

    def holds(self, step: int) -> bool:
        """Return whether the step, counted from 0, is one of the last before an audit."""
        return self.every > 0 and -(step + 1) % self.every < self.batches

    def rows_of(self, step: int) -> int:
        """Return how many rows of this batch are kept, whether or not they are followed."""
        return max(
            self.rows if self.holds(step) else 0,
            early_rows(step, self.rows) if step < EARLY_STEPS else 0,
        )


class Recorder:
    """Observes all messages of a run and keeps the rows that an audit needs."""

    def __init__(
        self,
        schedule: Schedule,
        codec: RowCodec,
        followed: Flags,
        window: Window,
        first_step: int = 0,
    ) -> None:
        self._schedule = schedule
        self._codec = codec
        self._followed = followed
        self._window = window
        self._lock = Lock()
        self._kept: list[Sighting] = []
        self._early: list[Sighting] = []
        self._recent: deque[Sighting] = deque(maxlen=window.batches)
        self._begin(first_step, self._batch(first_step))

    def see(self, message: Message | Control) -> None:
        """Record the rows of a message. Validating the message is left to its receiver.

        Raises:
            ProtocolViolation: the message contains NaN or infinity.
        """
        if isinstance(message, EmbeddingBlock | GradientBlock):
            with self._lock:
                self._see(message)

    def recent(self) -> list[Sighting]:
        """Return the last batches, up to `Window.rows` rows."""
        with self._lock:
            return list(self._recent)

    def early(self, window: TrainingWindow) -> list[Sighting]:
        """Return the batches of a window among the first batches, up to about `Window.rows` rows.

        Batches before the step at which a run was resumed are missing.
        """
        with self._lock:
            return [sighting for sighting in self._early if window.contains(sighting.step)]

    def forget_early(self) -> None:
        """Free the memory of the first batches."""
        with self._lock:
            self._early.clear()

    def followed(self, first_step: int = 0) -> list[Sighting]:
        """Return the rows of the followed UIDs, in order; steps with few rows are merged."""
        with self._lock:
            kept = [sighting for sighting in self._kept if sighting.step >= first_step]
            return list(merged(kept, min(ENOUGH, self._schedule.batch_size)))

    def _see(self, block: EmbeddingBlock | GradientBlock) -> None:
        partial = self._partial[type(block)]
        rows, torn = divmod(len(block.values), self._codec.row_bytes)
        is_next = (block.step, block.start) == (self._step, partial.seen)
        if not is_next or torn or not 0 < rows <= len(self._ranks) - partial.seen:
            return
        sent = np.frombuffer(block.values, dtype=np.uint8).reshape(rows, -1)
        partial.rows.append(sent[self._chosen[partial.seen : partial.seen + rows]])
        partial.seen += rows
        if all(kind.seen == len(self._ranks) for kind in self._partial.values()):
            self._finish()

    def _finish(self) -> None:
        """Keep the rows of a complete step, in which every embedding has its gradient."""
        embeddings, gradients = self._decoded(EmbeddingBlock), self._decoded(GradientBlock)
        chosen = np.flatnonzero(self._chosen)
        epoch = self._step // self._schedule.steps_per_epoch
        sighting = Sighting(self._step, epoch, self._ranks[chosen], embeddings, gradients)
        if self._window.holds(self._step):
            self._recent.append(sighting.where(chosen < self._window.rows))
        if self._step < EARLY_STEPS:
            rows = early_rows(self._step, self._window.rows)
            self._early.append(sighting.where(chosen < rows))
        sighting = sighting.where(self._followed[sighting.ranks])
        if len(sighting.ranks):
            self._kept.append(sighting)
        self._begin(self._step + 1, self._next_ranks)

    def _decoded(self, kind: type[EmbeddingBlock | GradientBlock]) -> Rows:
        rows = np.concatenate(self._partial[kind].rows)
        block = kind(self._step, 0, rows.tobytes())
        return self._codec.decode_block(block, self._step, 0, len(rows)).numpy()

    def _begin(self, step: int, ranks: Ranks) -> None:
        self._step = step
        self._ranks = ranks
        # One step ahead, like the feed: a schedule holds the order of one epoch at a time.
        self._next_ranks = self._batch(step + 1)
        self._chosen = self._followed[ranks] | (np.arange(len(ranks)) < self._window.rows_of(step))
        self._partial: dict[type[EmbeddingBlock | GradientBlock], _PartialStep] = {
            EmbeddingBlock: _PartialStep(),
            GradientBlock: _PartialStep(),
        }

    def _batch(self, step: int) -> Ranks:
        if step >= self._schedule.steps:
            return np.empty(0, dtype=np.int64)
        return self._schedule.batch(*divmod(step, self._schedule.steps_per_epoch))


@dataclass(slots=True)
class _PartialStep:
    """Blocks of one kind within a step: the rows seen so far, and the bytes of those to keep."""

    seen: int = 0
    rows: list[npt.NDArray[np.uint8]] = field(default_factory=list)


def merged(sightings: Iterable[Sighting], enough: int) -> Iterator[Sighting]:
    """Merge consecutive sightings of an epoch until they have `enough` rows.

    With a large union, each batch contains only a handful of the followed UIDs, which is too few
    for an attack.
    """
    parts: list[Sighting] = []
    for sighting in sightings:
        if parts and parts[0].epoch != sighting.epoch:
            yield _concatenated(parts)
            parts = []
        parts.append(sighting)
        if sum(len(part.ranks) for part in parts) >= enough:
            yield _concatenated(parts)
            parts = []
    if parts:
        yield _concatenated(parts)


def _concatenated(parts: list[Sighting]) -> Sighting:
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        ranks=np.concatenate([part.ranks for part in parts]),
        embeddings=np.concatenate([part.embeddings for part in parts]),
        gradients=np.concatenate([part.gradients for part in parts]),
    )
