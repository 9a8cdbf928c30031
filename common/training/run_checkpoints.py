"""The checkpoints of a run: regular ones, and one of the step at which it was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.training.checkpoint import CheckpointStore

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.training.checkpoint import Checkpoint


class RunCheckpoints:
    """Regular checkpoints, which both parties write at the same steps, and an interrupted step's.

    A run that was interrupted resumes at that step if both parties have its checkpoint. It is
    stored separately, so that it never replaces one that the peer is sure to have.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        """Keep the newest `keep` regular checkpoints."""
        self.directory = directory
        self._regular = CheckpointStore(directory, keep)
        self._interrupted = CheckpointStore(directory / "broken-off", 1)

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a regular checkpoint."""
        self._regular.save(checkpoint)
        self._interrupted.clear()

    def save_interrupted(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint of the step at which the run was interrupted here."""
        if checkpoint.step not in self._regular.steps():
            self._interrupted.save(checkpoint)

    def steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, ascending."""
        return sorted({*self._regular.steps(), *self._interrupted.steps()})

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint and verify all of it."""
        is_interrupted = step not in self._regular.steps() and step in self._interrupted.steps()
        return (self._interrupted if is_interrupted else self._regular).load(step)

    def clear(self) -> None:
        """Delete all checkpoints: the run is complete or starts over."""
        self._regular.clear()
        self._interrupted.clear()
