"""The learning rate of each step: a function of the number of the step alone.

So a resumed run and each of several processes use the same rates, without any state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from florist.common.settings.agreement import RateScheduleName, TrainingAgreement
    from florist.common.settings.training import Optimiser

#: Fraction of the steps in which the rate rises.
WARM_UP = 0.05


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """The rate of each step; a factor of the highest rate, `peak`."""

    peak: float
    #: Number of steps of the run.
    steps: int
    name: RateScheduleName = "warm-up-and-decay"

    @classmethod
    def agreed(
        cls, agreement: TrainingAgreement, optimiser: Optimiser, union_size: int
    ) -> RateSchedule:
        """Return the schedule of a resolved agreement, with the party's own rate if it has one."""
        peak = optimiser.learning_rate or agreement.known_learning_rate
        return cls(peak, agreement.steps(union_size), agreement.rate_schedule)

    def __call__(self, step: int) -> float:
        """Return the rate of a step, counted from 0."""
        if self.name == "constant":
            return self.peak
        warm_up = max(round(WARM_UP * self.steps), 1)
        if step < warm_up:
            return self.peak * (step + 1) / (warm_up + 1)
        done = (step - warm_up) / max(self.steps - warm_up, 1)
        return self.peak * (1 - done)
