"""The evidence of a label aggregate and of a shown label that a row is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from florist.common.audit.attack_tools.label_sums import LabelSums, log_likelihood_ratios

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.audit.view import Floats
    from florist.common.label_aggregate.first_model import Aggregate

    Flags = npt.NDArray[np.bool_]

#: How far the label's own evidence is trusted: P(y|x) is about as uncertain as the model's
#: prediction, from which it is taken.
_TRUST = 0.5
#: Bounds of a chance that a row is shared; and the chance of a row whose label changed.
_LEAST = 1e-3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evidence:
    """By row: the prior chance to be shared, and what the sums add to its log odds."""

    chances: Floats
    ratios: Floats

    @property
    def scores(self) -> Floats:
        """The posterior log odds."""
        found: Floats = logit(self.chances) + self.ratios
        return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AggregateEvidence:
    """What does not depend on who is shared: own rows, codes and the noise."""

    sums: LabelSums
    #: The code of each class; mean and mean square of the codes by the frequency of classes.
    codes: Floats
    mean: float
    mean_square: float
    shared: float
    #: phi'·V⁻¹·phi of each row.
    leverages: Floats

    @classmethod
    def of(
        cls, aggregate: Aggregate, categories: npt.NDArray[np.int32], random: np.random.RandomState
    ) -> AggregateEvidence:
        """Prepare the evidence about own rows with these categories, for two classes."""
        coordinates = aggregate.coordinates
        sums = LabelSums.of(coordinates.of(categories), coordinates.count, aggregate.noise)
        codes = aggregate.codes.table()[:, 0].astype(np.float64)
        rates = np.array(aggregate.rates)
        mean, square = float(rates @ codes), float(rates @ codes**2)
        variance = aggregate.shared * square - (aggregate.shared * mean) ** 2
        leverages = sums.leverages(np.full(len(categories), variance), random)
        return cls(sums, codes, mean, square, aggregate.shared, leverages)

    def evidence(
        self, sums: Floats, classes: npt.NDArray[np.int64], known: Flags, gaps: Floats
    ) -> Evidence:
        """Return the evidence of these noised sums.

        Args:
            sums: by coordinate.
            classes: of the label that each row shows.
            known: whether a row shows any label.
            gaps: log P(y|x) of the shown label minus that of the prediction it would be drawn from
                if it were synthetic; minus infinity for a label that is surely synthetic.
        """
        chances = self._chances(np.where(known, gaps, 0))
        code = np.where(known, self.codes[classes], self.mean)
        square = np.where(known, code**2, self.mean_square)
        residuals = sums - self.sums.sums(chances * code)
        projections = self.sums.evidence(residuals, chances * square - (chances * code) ** 2)
        return Evidence(chances, log_likelihood_ratios(projections, code, chances, self.leverages))

    def _chances(self, gaps: Floats) -> Floats:
        """Return prior chances by the label's own evidence, with the right mean."""
        prior = np.clip(self.shared, _LEAST, 1 - _LEAST)
        chances: Floats = expit(logit(prior) + _TRUST * np.where(np.isnan(gaps), 0, gaps))
        chances *= self.shared / max(float(chances.mean()), _LEAST)
        return np.clip(chances, _LEAST, 1 - _LEAST)

    def classes_of(self, sums: Floats, rarer: Flags) -> npt.NDArray[np.int64]:
        """Return the class of each shown label: which class is the rarer one follows from the sums.

        Gradients show two kinds of labels; the sums fit one assignment of classes better.
        """
        weights = 1 / (self.sums.sums(np.ones(len(rarer))) + self.sums.noise**2 + 1)

        def misfit(classes: npt.NDArray[np.int64]) -> float:
            expected = self.shared * self.sums.sums(self.codes[classes])
            return float(weights @ (sums - expected) ** 2)

        choices = (rarer.astype(np.int64), (~rarer).astype(np.int64))
        return min(choices, key=misfit)
