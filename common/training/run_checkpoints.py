"""The checkpoints of a run: those that both parties make alike, and one of where it broke off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.training.checkpoint import CheckpointStore

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.training.checkpoint import Checkpoint


class RunCheckpoints:
    """Two stores as one: a run that broke off at a step may go on from there, if both can.

    That step's checkpoint is kept apart, so that it never takes the place of one that the peer has
    for sure.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        """`keep` of those that both make."""
        self.directory = directory
        self._regular = CheckpointStore(directory, keep)
        self._broken_off = CheckpointStore(directory / "broken-off", 1)

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep one that both make."""
        self._regular.save(checkpoint)
        self._broken_off.clear()

    def save_interrupted(self, checkpoint: Checkpoint) -> None:
        """Keep one of the step at which the run broke off here."""
        if checkpoint.step not in self._regular.steps():
            self._broken_off.save(checkpoint)

    def steps(self) -> list[int]:
        """Steps of all complete checkpoints, ascending."""
        return sorted({*self._regular.steps(), *self._broken_off.steps()})

    def load(self, step: int) -> Checkpoint:
        """Read one and check all of it."""
        is_broken_off = step not in self._regular.steps() and step in self._broken_off.steps()
        return (self._broken_off if is_broken_off else self._regular).load(step)

    def clear(self) -> None:
        """Delete all: the run has ended, or is to begin anew."""
        self._regular.clear()
        self._broken_off.clear()
