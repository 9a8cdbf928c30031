"""Features for the UIDs that a party lacks: section "Synthetic Data Generation" of the paper.

A donor strategy chooses a row of the party's own table, whose embedding the bottom model computes
like any other. An embedding strategy generates the embedding at the cut layer, without gradient.
To add a strategy, register a class here and add its name to `settings/agreement.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch

from florist.common.core.errors import ConfigurationError
from florist.common.core.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from florist.common.settings.agreement import TrainingAgreement
    from florist.common.synthetic.secret_draws import SecretDraws


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """The arguments of all strategies; each uses what it needs."""

    draws: SecretDraws
    #: The number of rows of the party's own table.
    rows: int
    #: The width d of the embeddings that are sent.
    width: int
    #: Whether a UID has the same synthetic features in every epoch.
    sticky: bool = True


class FeatureStrategy(ABC):
    """How the UIDs that a party lacks get features."""

    name: ClassVar[str]
    #: Whether the peer's model cannot distinguish a synthetic row from a real one. Calibration
    #: depends on it.
    looks_real: ClassVar[bool]

    @classmethod
    @abstractmethod
    def make(cls, settings: FeatureSettings) -> Self:
        """Create the strategy.

        Raises:
            ConfigurationError: it cannot work with these settings.
        """


class DonorStrategy(FeatureStrategy):
    """Copies the features of rows of the own table."""

    @abstractmethod
    def donors(self, ranks: npt.NDArray[np.int64], epoch: int) -> npt.NDArray[np.int64]:
        """Return the donor row of the own table for each UID, given by its rank in `U`."""


class EmbeddingStrategy(FeatureStrategy):
    """Generates embeddings at the cut layer."""

    @abstractmethod
    def embeddings(self, real: Tensor, count: int, *context: int) -> Tensor:
        """Return `count` detached embeddings (count, d) for a mini-batch.

        `real` are the embeddings (n, d) of the mini-batch's real rows. Must be called once per
        mini-batch, even if `count` or `n` is 0, with a unique `context` (epoch, step).
        """

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        if state:
            raise ValueError(f"{self.name} has no state, but got: {', '.join(state)}")


FEATURE_STRATEGIES: Registry[type[FeatureStrategy]] = Registry("feature strategy")


def feature_strategy(name: str, settings: FeatureSettings) -> FeatureStrategy:
    """Create the strategy with this name.

    Raises:
        ConfigurationError: the name is unknown, or the strategy cannot work with these settings.
    """
    return FEATURE_STRATEGIES[name].make(settings)


def agreed_feature_strategy(
    agreement: TrainingAgreement, rows: int, draws: SecretDraws
) -> FeatureStrategy:
    """Return the strategy that the parties agreed on, for a passive party's table of `rows` rows.

    Raises:
        ConfigurationError: the strategy is unknown, or cannot work with these settings.
    """
    settings = FeatureSettings(draws, rows, agreement.wire_width, sticky=agreement.sticky)
    return feature_strategy(agreement.features.strategy, settings)


@FEATURE_STRATEGIES.register
class FeaSampling(DonorStrategy):
    """Copies a random row of the own table: a draw from the marginal distribution (theorem 2).

    If sticky, a UID has the same donor in every epoch. Otherwise the donor is drawn in each epoch.
    """

    name = "fea-sampling"
    looks_real = True

    def __init__(self, draws: SecretDraws, rows: int, *, sticky: bool = True) -> None:
        if rows < 1:
            raise ConfigurationError("fea-sampling needs at least one row in this party's table")
        self._draws = draws
        self._rows = rows
        self._sticky = sticky

    @classmethod
    def make(cls, settings: FeatureSettings) -> Self:
        return cls(settings.draws, settings.rows, sticky=settings.sticky)

    def donors(self, ranks: npt.NDArray[np.int64], epoch: int) -> npt.NDArray[np.int64]:
        context = () if self._sticky else (epoch,)
        return self._draws.integers_at(self.name, ranks, self._rows, *context)


@FEATURE_STRATEGIES.register
class FeaGaussian(EmbeddingStrategy):
    """Draws from N(0, (s/d) · max ‖f(x_i)‖² · I), the maximum over the mini-batch's real rows.

    `scale` is the paper's s. A mini-batch without real rows gets N(0, s · I), as if the largest
    norm were √d.
    """

    name = "fea-gaussian"
    looks_real = False

    def __init__(self, draws: SecretDraws, scale: float = 1.0) -> None:
        if not scale > 0:
            raise ConfigurationError(f"fea-gaussian: the scale {scale} is not above 0")
        self._draws = draws
        self._scale = scale

    @classmethod
    def make(cls, settings: FeatureSettings) -> Self:
        return cls(settings.draws)

    @torch.no_grad()
    def embeddings(self, real: Tensor, count: int, *context: int) -> Tensor:
        width = real.shape[1]
        largest = real.square().sum(1).max() if len(real) else real.new_tensor(width)
        normals = self._draws.normals(self.name, (count, width), *context)
        return torch.from_numpy(normals).to(real) * torch.sqrt(self._scale / width * largest)


@FEATURE_STRATEGIES.register
class FeaRandom(EmbeddingStrategy):
    """Draws from N(mean, std²) per dimension, with moving averages over the real rows.

    Each mini-batch is included before its own synthetic rows are drawn: the mean becomes
    (1 - momentum) times itself plus momentum times the batch's mean, and likewise the standard
    deviation. The first mini-batch with real rows sets both; before it they are 0 and 1. A
    mini-batch without real rows changes nothing. Standard deviations are those of the batch as a
    population, so a single row has standard deviation 0.
    """

    name = "fea-random"
    looks_real = False

    def __init__(self, draws: SecretDraws, width: int, momentum: float = 0.1) -> None:
        if not 0 < momentum <= 1:
            raise ConfigurationError(f"fea-random: the momentum {momentum} is not in (0, 1]")
        self._draws = draws
        self._momentum = momentum
        self._mean = torch.zeros(width)
        self._std = torch.ones(width)
        self._started = False

    @classmethod
    def make(cls, settings: FeatureSettings) -> Self:
        return cls(settings.draws, settings.width)

    @torch.no_grad()
    def embeddings(self, real: Tensor, count: int, *context: int) -> Tensor:
        if len(real):
            weight = self._momentum if self._started else 1.0
            self._mean = torch.lerp(self._mean.to(real), real.mean(0), weight)
            self._std = torch.lerp(self._std.to(real), real.std(0, correction=0), weight)
            self._started = True
        normals = self._draws.normals(self.name, (count, len(self._mean)), *context)
        return self._mean + self._std * torch.from_numpy(normals).to(self._mean)

    def state(self) -> dict[str, Tensor]:
        return {"mean": self._mean, "std": self._std, "started": torch.tensor(self._started)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._mean, self._std = state["mean"], state["std"]
        self._started = bool(state["started"])
