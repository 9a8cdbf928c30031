"""Records what the peer sees of us.

A sample of UIDs is followed through all epochs, for attacks that compare epochs. The last batches
before an audit are kept whole, for attacks on single batches, and so are the first batches of the
run.

The sample are the first ranks, since ranks are random. But a UID whose features are copied from
another UID is followed exactly if the other one is. Otherwise the sample would separate nearly all
copies from their originals, by which the peer, who sees all UIDs, may recognise them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from florist.common.audit.training_windows import EARLY_STEPS, early_rows
from florist.common.training.class_weights import without_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from florist.common.audit.training_windows import TrainingWindow
    from florist.common.audit.view import Ranks, Rows
    from florist.common.training.row_codec import RowCodec
    from florist.common.training.schedule import Schedule
    from florist.common.training.seen_rows import SeenRows
    from florist.common.transport.messages import Data

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
    #: The number of last columns that are added to the logits.
    logit_columns: int = 0
    #: The number of rows of a whole batch; 0 if it is not known.
    batch_size: int = 0

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
        followed: int,
        window: Window,
        first_step: int = 0,
        logit_columns: int = 0,
        weights: tuple[float, float] | None = None,
    ) -> None:
        """Follow the UIDs with the first `followed` ranks, and their copies.

        `weights` are the class weights of the loss. The peer knows them, so they are undone.
        """
        self._schedule = schedule
        self._codec = codec
        self._followed = followed
        self._window = window
        self._logit_columns = logit_columns
        self._weights = weights
        self._lock = Lock()
        self._kept: list[Sighting] = []
        self._early: list[Sighting] = []
        self._recent: deque[Sighting] = deque(maxlen=window.batches)
        self._seen = 0
        self._begin(first_step, self._batch(first_step))

    def see(self, seen: SeenRows) -> None:
        """Record a part of a step, in the order of the schedule.

        Raises:
            ProtocolViolation: it contains NaN or infinity.
        """
        with self._lock:
            self._see(seen)

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

    def _see(self, seen: SeenRows) -> None:
        stop = self._seen + len(seen.embeddings) // self._codec.row_bytes
        ranks = self._ranks[self._seen : stop]
        followed = (ranks if seen.origins is None else seen.origins) < self._followed
        chosen = followed | (np.arange(self._seen, stop) < self._window.rows_of(self._step))
        self._parts.append(
            _PartialStep(
                np.flatnonzero(chosen) + self._seen,
                followed[chosen],
                self._bytes_of(seen.embeddings)[chosen],
                self._bytes_of(seen.gradients)[chosen],
            )
        )
        self._seen = stop
        if self._seen == len(self._ranks):
            self._finish()

    def _bytes_of(self, values: Data) -> npt.NDArray[np.uint8]:
        return np.frombuffer(values, dtype=np.uint8).reshape(-1, self._codec.row_bytes)

    def _finish(self) -> None:
        """Keep the rows of a complete step, in which every embedding has its gradient."""
        chosen = np.concatenate([part.chosen for part in self._parts])
        followed = np.concatenate([part.followed for part in self._parts])
        embeddings = self._decoded([part.embeddings for part in self._parts])
        received = self._decoded([part.gradients for part in self._parts])
        gradients = without_weights(received, self._weights, len(self._ranks))
        epoch = self._step // self._schedule.steps_per_epoch
        sighting = Sighting(
            self._step,
            epoch,
            self._ranks[chosen],
            embeddings,
            gradients,
            self._logit_columns,
            len(self._ranks),
        )
        if self._window.holds(self._step):
            self._recent.append(sighting.where(chosen < self._window.rows))
        if self._step < EARLY_STEPS:
            rows = early_rows(self._step, self._window.rows)
            self._early.append(sighting.where(chosen < rows))
        sighting = sighting.where(followed)
        if len(sighting.ranks):
            self._kept.append(sighting)
        self._begin(self._step + 1, self._next_ranks)

    def _decoded(self, parts: list[npt.NDArray[np.uint8]]) -> Rows:
        rows = np.concatenate(parts)
        return self._codec.decode(rows.tobytes()).numpy()

    def _begin(self, step: int, ranks: Ranks) -> None:
        self._step = step
        self._ranks = ranks
        # One step ahead, like the feed: a schedule holds the order of one epoch at a time.
        self._next_ranks = self._batch(step + 1)
        self._seen = 0
        self._parts: list[_PartialStep] = []

    def _batch(self, step: int) -> Ranks:
        if step >= self._schedule.steps:
            return np.empty(0, dtype=np.int64)
        return self._schedule.batch(*divmod(step, self._schedule.steps_per_epoch))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _PartialStep:
    """The rows to keep of a part of a step: their positions in the batch, and their bytes."""

    chosen: Ranks
    #: Whether each of them is followed.
    followed: Flags
    embeddings: npt.NDArray[np.uint8]
    gradients: npt.NDArray[np.uint8]


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
