"""Gaussian noise on embeddings, which hides that two rows are copies of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from florist.common.core.errors import ConfigurationError

if TYPE_CHECKING:
    from torch import Tensor

    from florist.common.synthetic.secret_draws import SecretDraws


@dataclass(frozen=True, slots=True)
class EmbeddingNoise:
    """Adds Gaussian noise to every row, real or synthetic, so that copies are no longer equal.

    The covariance of the noise is `level`² times that of the given embeddings. So it hides equally
    well in the few directions in which embeddings differ most and in all others. (Isotropic noise
    would vanish for an attacker who looks only along those directions.) A single row, which has no
    covariance, gets `level` times the root mean square of its entries. Gradients pass as if the
    noise were constant. Level 0 changes nothing.
    """

    level: float
    draws: SecretDraws

    def __post_init__(self) -> None:
        if not self.level >= 0:
            raise ConfigurationError(f"the noise level {self.level} is negative")

    def __call__(self, embeddings: Tensor, *context: int, like: Tensor | None = None) -> Tensor:
        """Return the embeddings (B, d) plus noise that the secret and the `context` determine.

        The context is unique to each call, for instance the step and the first row of a part. The
        covariance of the noise is that of the embeddings `like`, by default of those given.
        """
        if self.level == 0:
            return embeddings
        normals = self.draws.normals("embedding noise", embeddings.shape, *context)
        noise = self.level * torch.from_numpy(normals).to(embeddings)
        return embeddings + _shaped(noise, (embeddings if like is None else like).detach())


def _shaped(noise: Tensor, embeddings: Tensor) -> Tensor:
    """Give standard normal `noise` the population covariance of the embeddings."""
    if len(embeddings) == 1:
        return noise * embeddings.square().mean().sqrt()
    centred = embeddings - embeddings.mean(0)
    covariance = centred.T @ centred / len(centred)
    # Units that are always 0, or fewer rows than units, make it singular, so a little is added.
    diagonal = covariance.diagonal()
    diagonal += 1e-5 * diagonal.mean() + torch.finfo(covariance.dtype).tiny
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        factor = diagonal.sqrt().diag()
    shaped: Tensor = noise @ factor.T
    return shaped
