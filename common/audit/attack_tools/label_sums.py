"""Who is part of the sums of labels by category, as far as the sums tell.

The sums are t = sum over rows of z·c·phi + noise, with z = 1 for people who are shared and 0 for
the others, the code c of a row's label, and its one-hot coordinates phi. Gradients show a label for
each row, which is the one in the sums if the row is shared. So the attacker knows c and phi of all
rows, and only z is unknown. With a prior chance s of each row, the sums have

    mean  sum of s·c·phi    and    covariance  V = sum of s(1 - s)·c²·phi·phi' + noise²·I

and are nearly normal. Without the row in question they differ by c·phi if the row is shared. With
r = t - mean, u = c·phi'·V⁻¹·r and the leverage h = c²·phi'·V⁻¹·phi, the logarithm of the likelihood
ratio follows from a rank-one change of V:

    (u + (s - 1/2)·h) / (1 - s(1 - s)·h)

V is never formed: V⁻¹ is applied by conjugate gradients, with time linear in the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from florist.common.audit.view import Floats

#: Conjugate gradients stop at this relative residual or after this many iterations. More iterations
#: do not change the order of the scores.
_TOLERANCE, _ITERATIONS = 3e-3, 60
#: Random vectors that estimate leverages, and groups of rows that share an estimate.
_PROBES, _GROUPS = 8, 50
#: An upper bound for s(1 - s)·h, which is below 1 but for its estimate.
_MOST = 0.9
#: Least variance of a sum, for coordinates without rows.
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LabelSums:
    """The coordinates of all own rows, and the noise of the sums."""

    #: One-hot: (rows, coordinates), and transposed.
    features: sparse.csr_array
    transposed: sparse.csr_array
    noise: float

    @classmethod
    def of(cls, coordinates: npt.NDArray[np.int32], count: int, noise: float) -> LabelSums:
        """Prepare sums over rows with these coordinates: (rows, columns), each below `count`."""
        starts = np.arange(0, coordinates.size + 1, coordinates.shape[1])
        features = sparse.csr_array(
            (np.ones(coordinates.size), coordinates.ravel(), starts), (len(coordinates), count)
        )
        return cls(features, features.T.tocsr(), noise)

    def sums(self, values: Floats) -> Floats:
        """Return the sum of the rows' values by coordinate."""
        found: Floats = self.transposed @ values
        return found

    def evidence(self, residuals: Floats, variances: Floats) -> Floats:
        """Return phi'·V⁻¹·r of each row.

        Args:
            residuals: r of each coordinate.
            variances: s(1 - s)·c² of each row.
        """
        found: Floats = self.features @ self._solve(residuals[:, None], variances)[:, 0]
        return found

    def rarity(self, variances: Floats) -> Floats:
        """Return the leverages as they would be if V were diagonal."""
        found: Floats = self.features @ (1 / self._diagonal(variances))
        return found

    def leverages(self, variances: Floats, random: np.random.RandomState) -> Floats:
        """Return phi'·V⁻¹·phi of each row, estimated by random draws.

        Draws w from a normal distribution with covariance V: the variance of phi'·V⁻¹·w is the
        leverage. Few draws are enough, since rows of similar rarity share an estimate.
        """
        rows, coordinates = self.features.shape
        draws = self.transposed @ (
            np.sqrt(variances)[:, None] * random.normal(size=(rows, _PROBES))
        )
        draws += self.noise * random.normal(size=(coordinates, _PROBES))
        squares = ((self.features @ self._solve(draws, variances)) ** 2).mean(axis=1)
        group = np.empty(rows, dtype=np.int64)
        group[self.rarity(variances).argsort(kind="stable")] = (
            np.arange(rows) * min(_GROUPS, rows) // max(rows, 1)
        )
        means = np.bincount(group, squares) / np.bincount(group)
        return means[group]

    def _diagonal(self, variances: Floats) -> Floats:
        return np.maximum(self.sums(variances) + self.noise**2, _LEAST)

    def _solve(self, right: Floats, variances: Floats) -> Floats:
        def times_covariance(x: Floats) -> Floats:
            found: Floats = self.transposed @ (variances[:, None] * (self.features @ x))
            return found + self.noise**2 * x

        return _conjugate_gradients(times_covariance, right, self._diagonal(variances)[:, None])


def log_likelihood_ratios(
    projections: Floats, codes: Floats, chances: Floats, leverages: Floats
) -> Floats:
    """Return the logarithm of the likelihood ratio of the sums with and without each row.

    Args:
        projections: phi'·V⁻¹·r of each row.
        codes: c of each row.
        chances: s of each row.
        leverages: phi'·V⁻¹·phi of each row.
    """
    leverage = codes**2 * leverages
    own = np.minimum(chances * (1 - chances) * leverage, _MOST)
    found: Floats = (codes * projections + (chances - 0.5) * leverage) / (1 - own)
    return found


def _conjugate_gradients(
    times: Callable[[Floats], Floats], right: Floats, diagonal: Floats
) -> Floats:
    """Solve a positive semidefinite system, preconditioned by its diagonal, for several columns."""
    solution, residual = np.zeros_like(right), right.copy()
    scaled = residual / diagonal
    direction, product = scaled.copy(), (residual * scaled).sum(axis=0)
    target = _TOLERANCE**2 * (right**2).sum(axis=0)
    for _ in range(_ITERATIONS):
        if ((residual**2).sum(axis=0) <= target).all():
            break
        image = times(direction)
        length = product / np.maximum((direction * image).sum(axis=0), np.finfo(float).tiny)
        solution += length * direction
        residual -= length * image
        scaled = residual / diagonal
        before, product = product, (residual * scaled).sum(axis=0)
        direction = scaled + product / np.maximum(before, np.finfo(float).tiny) * direction
    return solution
