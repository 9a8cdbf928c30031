"""Settings and data from which a party's half of the model is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from florist.common.training.rate_schedule import RateSchedule

if TYPE_CHECKING:
    from florist.common.settings.training import Model, Optimiser
    from florist.common.synthetic.secret_draws import SecretDraws
    from florist.common.training.training_data import TrainingData


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HalfSetup:
    """All that a party's half is built from."""

    data: TrainingData
    #: Number of numeric columns, and categories of each categorical one; 0 and () without features.
    numeric: int
    cardinalities: tuple[int, ...]
    model: Model
    optimiser: Optimiser
    #: Training processes, this one included.
    processes: int = 1

    @property
    def rates(self) -> RateSchedule:
        """The learning rate of each step."""
        return RateSchedule.agreed(self.data.agreement, self.optimiser, self.data.train.sizes.union)

    def seed(self, draws: SecretDraws) -> int:
        """Return the seed of the initial weights, which is as secret as the run's other draws."""
        return int.from_bytes(draws.derive("weights").secret)
