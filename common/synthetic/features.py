"""Features for the UIDs that a party lacks: section "Synthetic Data Generation", and its rivals.

A strategy either names rows of the party's own table that stand in, and their embedding comes out
of the bottom model like any other; or it makes embeddings at the cut layer, without gradient.
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
    """What the strategies are made from; each takes what it needs."""

    draws: SecretDraws
    #: Rows of the party's own table.
    rows: int
    #: Width d of the cut layer.
    width: int
    sticky: bool = True
    #: The paper's s, of fea-gaussian.
    scale: float = 1.0
    #: Weight of the newest batch in the moving averages of fea-random.
    momentum: float = 0.1


class FeatureStrategy(ABC):
    name: ClassVar[str]
    #: Whether the peer's model cannot tell a synthetic row from a real one; calibration needs it.
    looks_real: ClassVar[bool]

    @classmethod
    @abstractmethod
    def make(cls, settings: FeatureSettings) -> Self: ...


class DonorStrategy(FeatureStrategy):
    @abstractmethod
    def donors(self, ranks: npt.NDArray[np.int64], epoch: int) -> npt.NDArray[np.int64]:
        """The row of the own table that stands in for each UID, given by its rank in `U`."""


class EmbeddingStrategy(FeatureStrategy):
    @abstractmethod
    def embeddings(self, real: Tensor, count: int, *context: int) -> Tensor:
        """`count` embeddings (count, d), detached, beside the `real` ones (n, d) of a mini-batch.

        To be called once for each mini-batch, also if `count` or `n` is 0, with a `context` (epoch,
        step) of its own.
        """

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        if state:
            raise ValueError(f"{self.name} has no state, but got: {', '.join(state)}")


FEATURE_STRATEGIES: Registry[type[FeatureStrategy]] = Registry("feature strategy")


def feature_strategy(name: str, settings: FeatureSettings) -> FeatureStrategy:
    """The strategy of this name.

    Raises:
        ConfigurationError: there is none, or it cannot work with these settings.
    """
    return FEATURE_STRATEGIES[name].make(settings)


def agreed_feature_strategy(
    agreement: TrainingAgreement, rows: int, draws: SecretDraws
) -> FeatureStrategy:
    """Return the strategy that the parties agreed on, for a passive party's table of `rows` rows.

    Raises:
        ConfigurationError: the strategy is unknown, or cannot work with these settings.
    """
    settings = FeatureSettings(draws, rows, agreement.cut_width, sticky=agreement.sticky)
    return feature_strategy(agreement.features.strategy, settings)


@FEATURE_STRATEGIES.register
class FeaSampling(DonorStrategy):
    """A random row of the own table: a draw from the marginal distribution (theorem 2).

    Sticky: a UID has the same donor in every epoch. Otherwise it is drawn again each epoch.
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
    """N(0, (s/d) · max ‖f(x_i)‖² · I), the maximum over the real rows of the mini-batch.

    A mini-batch with no real row gets N(0, s · I), as if the largest norm were √d.
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
        return cls(settings.draws, settings.scale)

    @torch.no_grad()
    def embeddings(self, real: Tensor, count: int, *context: int) -> Tensor:
        width = real.shape[1]
        largest = real.square().sum(1).max() if len(real) else real.new_tensor(width)
        normals = self._draws.normals(self.name, (count, width), *context)
        return torch.from_numpy(normals).to(real) * torch.sqrt(self._scale / width * largest)


@FEATURE_STRATEGIES.register
class FeaRandom(EmbeddingStrategy):
    """N(mean, deviation²) per dimension: moving averages of those of the real rows.

    Each mini-batch enters before its own synthetic rows are drawn: the mean becomes (1 - momentum)
    times itself plus momentum times the batch's, and the deviation alike; the first one sets both.
    A mini-batch with no real row changes nothing; before the first real row they are 0 and 1.
    Deviations are those of the batch as a population, so a single row counts as deviation 0.
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
        return cls(settings.draws, settings.width, settings.momentum)

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


@dataclass(frozen=True, slots=True)
class EmbeddingNoise:
    """Gaussian noise on every row, real or synthetic: copies of a row are no longer equal.

    Its covariance is `level`² times that of the given embeddings, so that it hides as much in the
    few directions in which they differ most as in all others. (Noise of the same size everywhere
    disappears if one looks along those directions alone.) A single row, which has no covariance,
    gets `level` times the root mean square of its entries. Gradients pass as if the noise were a
    constant. Level 0 changes nothing.
    """

    level: float
    draws: SecretDraws

    def __post_init__(self) -> None:
        if not self.level >= 0:
            raise ConfigurationError(f"the noise level {self.level} is negative")

    def __call__(self, embeddings: Tensor, *context: int) -> Tensor:
        """`embeddings` (B, d) with noise that the secret and the `context` determine.

        The context is the epoch, the step and, where a mini-batch comes in parts, the part.
        """
        if self.level == 0:
            return embeddings
        normals = self.draws.normals("embedding noise", embeddings.shape, *context)
        noise = self.level * torch.from_numpy(normals).to(embeddings)
        return embeddings + _shaped(noise, embeddings.detach())


def _shaped(noise: Tensor, embeddings: Tensor) -> Tensor:
    """Standard normal `noise` with the covariance of the embeddings as a population."""
    if len(embeddings) == 1:
        return noise * embeddings.square().mean().sqrt()
    centred = embeddings - embeddings.mean(0)
    covariance = centred.T @ centred / len(centred)
    # Units that are always 0, or fewer rows than units, leave it singular: a little is added.
    diagonal = covariance.diagonal()
    diagonal += 1e-5 * diagonal.mean() + torch.finfo(covariance.dtype).tiny
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        factor = diagonal.sqrt().diag()
    shaped: Tensor = noise @ factor.T
    return shaped
