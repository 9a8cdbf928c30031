"""Parts of a training run that are audited separately: the first batches, and all later ones.

A model that has just started differs most from a trained one, and so may what it reveals. In the
average of a long run, a leak in the first batches disappears.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WindowName = Literal["batch-0", "batches-0-4", "batches-5-9", "batches-10-19", "later-batches"]


@dataclass(frozen=True, slots=True)
class TrainingWindow:
    """The steps from `start` up to `stop`, which is excluded; None: to the end of the run."""

    start: int
    stop: int | None

    def contains(self, step: int) -> bool:
        """Return whether a step, counted from 0 over all epochs, is in the window."""
        return self.start <= step and (self.stop is None or step < self.stop)


TRAINING_WINDOWS: dict[WindowName, TrainingWindow] = {
    "batch-0": TrainingWindow(0, 1),
    "batches-0-4": TrainingWindow(0, 5),
    "batches-5-9": TrainingWindow(5, 10),
    "batches-10-19": TrainingWindow(10, 20),
    "later-batches": TrainingWindow(20, None),
}

#: The number of first steps that are in early windows.
EARLY_STEPS = 20


def windows_ending_at(step: int, steps: int) -> list[WindowName]:
    """Return the early windows that are complete after `step` steps of a run with `steps` steps.

    If the run ends within a window, the window ends there too.
    """
    return [
        name
        for name, window in TRAINING_WINDOWS.items()
        if window.stop is not None and window.start < steps and step == min(window.stop, steps)
    ]


def early_rows(step: int, rows: int) -> int:
    """Return how many rows of one of the first batches to keep for windows of about `rows` rows.

    The first batch is a window of its own. Each other batch has an equal share of its window.
    """
    sizes = [
        window.stop - window.start
        for window in TRAINING_WINDOWS.values()
        if window.stop is not None and window.contains(step)
    ]
    return -(-rows // min(sizes))
