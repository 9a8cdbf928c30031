"""The checkpoints of a run: regular ones, and one of the step at which it was interrupted."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.storage.manifest import DamagedFile
from florist.common.training.checkpoint import Checkpoint, CheckpointStore
from florist.common.training.run_facts import RunFacts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor


log = logging.getLogger("florist.train")


@dataclass(frozen=True, slots=True, eq=False)
class RunCheckpoint:
    """The state of a run at one party after `step` steps."""

    step: int
    tensors: Mapping[str, Tensor] = field(repr=False)
    facts: RunFacts = field(repr=False)


class RunCheckpoints:
    """Regular checkpoints, which both parties write at the same steps, and an interrupted step's.

    A run that was interrupted resumes at that step if both parties have its checkpoint. It is
    stored separately, so that it never replaces one that the peer is sure to have.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        """Keep the newest `keep` regular checkpoints."""
        self.directory = directory
        self._regular = CheckpointStore(directory, keep)
        # The folder has the name that earlier releases gave it, so that their runs can resume.
        self._interrupted = CheckpointStore(directory / "broken-off", 1)

    def save(self, checkpoint: RunCheckpoint) -> None:
        """Save a regular checkpoint."""
        self._regular.save(_to_stored(checkpoint))
        self._interrupted.clear()

    def save_interrupted(self, checkpoint: RunCheckpoint) -> None:
        """Save a checkpoint of the step at which the run was interrupted here."""
        if checkpoint.step not in self._regular.steps():
            self._interrupted.save(_to_stored(checkpoint))

    def steps(self) -> list[int]:
        """Return the steps of all complete checkpoints, ascending."""
        return sorted({*self._regular.steps(), *self._interrupted.steps()})

    def load(self, step: int) -> RunCheckpoint:
        """Read a checkpoint and verify all of it.

        Raises:
            ConfigurationError: it is damaged, or of another release.
        """
        is_interrupted = step not in self._regular.steps() and step in self._interrupted.steps()
        stored = (self._interrupted if is_interrupted else self._regular).load(step)
        try:
            facts = RunFacts.from_json(stored.facts)
        except (ValueError, RecursionError):  # pydantic's errors are ValueErrors
            raise DamagedFile(
                f"{self.directory}: the checkpoint of step {step} is damaged, or was written by "
                "another release; restore it, or start over with --force"
            ) from None
        return RunCheckpoint(step, stored.tensors, facts)

    def damages(self) -> list[str]:
        """Return a sentence for each checkpoint that cannot be loaded; reads all of them."""
        return [*self._regular.damages(), *self._interrupted.damages()]

    def newest(self) -> RunCheckpoint | None:
        """Return the newest checkpoint that can be loaded; None if there is none."""
        for step in reversed(self._all_steps()):
            with suppress(ConfigurationError):
                return self.load(step)
        return None

    def loadable_steps(self) -> list[int]:
        """Return the steps of the checkpoints that can be loaded, ascending; reads all of them.

        Others are logged: the run resumes from an older one.

        Raises:
            DamagedFile: there are checkpoints, and none can be loaded.
        """
        found, newest_error = [], None
        for step in reversed(self._all_steps()):
            try:
                self.load(step)
            except ConfigurationError as error:
                newest_error = newest_error or error
                log.warning("the checkpoint of step %d is not used: %s", step, error.reason)
            else:
                found.append(step)
        if newest_error is not None and not found:
            raise newest_error
        return sorted(found)

    def _all_steps(self) -> list[int]:
        """Return the steps of all checkpoints, complete or not."""
        return sorted({*self._regular.all_steps(), *self._interrupted.all_steps()})

    def clear(self) -> None:
        """Delete all checkpoints: the run is complete or starts over."""
        self._regular.clear()
        self._interrupted.clear()


def _to_stored(checkpoint: RunCheckpoint) -> Checkpoint:
    return Checkpoint(checkpoint.step, checkpoint.tensors, checkpoint.facts.to_json())
