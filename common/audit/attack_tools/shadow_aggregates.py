"""What a passive party would see of a label aggregate if it chose itself who is shared.

A shadow has the own rows of the attacker, and everything else is drawn: who is shared, their labels
from the fitted P(y|x), the noise of the sums, and the labels of the others from the first model of
these sums. It lacks what training adds to the first model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from florist.common.audit.attack_tools.label_posterior import cross_fitted, log_fit
from florist.common.label_aggregate.first_model import solve_first_model

if TYPE_CHECKING:
    import numpy.typing as npt
    from scipy import sparse

    from florist.common.audit.attack_tools.aggregate_evidence import AggregateEvidence
    from florist.common.audit.view import Floats, Ranks
    from florist.common.label_aggregate.first_model import Aggregate

    Flags = npt.NDArray[np.bool_]

#: Folds of the fit of P(y|x), in the shadows and in the real view.
FOLDS = 2
#: Regularisations of the first model among which the one of the run is looked for.
PENALTIES = (20.0, 80.0, 320.0)
#: Bounds of probabilities whose log odds are taken.
_LEAST = 1e-4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OwnRows:
    """What all views of the same rows have in common."""

    categories: npt.NDArray[np.int32]
    #: One-hot features for P(y|x).
    columns: sparse.csr_array
    ranks: Ranks
    evidence: AggregateEvidence
    #: Logarithms of the numbers of rows that share the two rarest coordinates of a row.
    rarest: Floats

    @classmethod
    def of(
        cls,
        aggregate: Aggregate,
        categories: npt.NDArray[np.int32],
        columns: sparse.csr_array,
        ranks: Ranks,
        evidence: AggregateEvidence,
    ) -> OwnRows:
        """Count the rows of each coordinate."""
        coordinates = aggregate.coordinates.of(categories)
        counts = np.bincount(coordinates.ravel(), minlength=aggregate.coordinates.count)
        rarest = np.log(np.sort(counts[coordinates], axis=1)[:, :2])
        return cls(categories, columns, ranks, evidence, rarest)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeenAggregate:
    """An aggregate and the labels that gradients show, of a real run or of a shadow."""

    aggregate: Aggregate
    classes: npt.NDArray[np.int64]
    known: Flags
    changed: Flags
    #: P(class 1) by the model from which synthetic labels are drawn, by the first model, and as
    #: fitted to the labels.
    shown: Floats
    first: Floats
    fitted: Floats
    penalty: float


def shadow(
    rows: OwnRows,
    aggregate: Aggregate,
    probabilities: Floats,
    penalty: float,
    random: np.random.RandomState,
) -> tuple[SeenAggregate, Flags]:
    """Draw a shadow; return what is seen of it, and who is shared.

    Args:
        rows: the own rows.
        aggregate: the real one, of which the sums are replaced.
        probabilities: P(y = 1 | x) of each row.
        penalty: the regularisation of the first model.
        random: for all draws.
    """
    size = len(probabilities)
    is_shared = random.uniform(size=size) < aggregate.shared
    real = random.uniform(size=size) < probabilities
    sums = rows.evidence.sums.sums(is_shared * rows.evidence.codes[real.astype(np.int64)])
    noised = np.rint(sums + aggregate.noise * random.normal(size=len(sums))).astype(np.int64)
    drawn = replace(aggregate, sums=noised[:, None])
    first = solve_first_model(drawn, rows.categories, random, penalty).probabilities(
        rows.categories
    )[:, 1]
    labels = np.where(is_shared, real, random.uniform(size=size) < first)
    everyone = np.ones(size, dtype=np.bool_)
    fitted = cross_fitted(rows.columns, rows.ranks, labels, folds=FOLDS)
    seen = SeenAggregate(
        drawn, labels.astype(np.int64), everyone, ~everyone, first, first, fitted, penalty
    )
    return seen, is_shared


def inputs(rows: OwnRows, seen: SeenAggregate) -> Floats:
    """Return what tells a shared row from others: (rows, inputs). The first three increase."""
    labels, aggregate = seen.classes > 0, seen.aggregate
    fit = log_fit(labels, seen.fitted)
    gaps = np.where(seen.changed, -np.inf, fit - log_fit(labels, seen.shown))
    evidence = rows.evidence.evidence(
        aggregate.sums[:, 0].astype(np.float64), seen.classes, seen.known, gaps
    )
    first = _odds(seen.first)
    without = first - _own_share(rows, seen)
    found: Floats = np.column_stack(
        [
            evidence.scores,
            evidence.ratios,
            np.maximum(gaps, np.log(_LEAST)),
            labels,
            _odds(seen.fitted),
            first,
            np.where(labels, first - without, without - first),
            rows.evidence.leverages,
            rows.rarest,
        ]
    )
    return found


def _own_share(rows: OwnRows, seen: SeenAggregate) -> Floats:
    """Return what a row adds to its own logit of the first model, if its label is in the sums."""
    rate, factor = seen.aggregate.rates[1], 1 / seen.aggregate.shared
    sums = rows.evidence.sums
    curvature = sums.sums(np.full(len(rows.ranks), rate * (1 - rate))) + seen.penalty * factor
    found: Floats = factor * ((seen.classes > 0) - rate) * (sums.features @ (1 / curvature))
    return found


def _odds(probabilities: Floats) -> Floats:
    found: Floats = logit(np.clip(probabilities, _LEAST, 1 - _LEAST))
    return found
