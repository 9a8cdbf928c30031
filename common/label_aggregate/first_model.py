"""The first model: a logistic regression solved from the aggregate.

A logistic regression on shared people would solve, for each category j,

    sum over shared people with category j of (p(x) - y)  =  -regularisation

The passive party does not know who is shared, but the aggregate tells it the sum of the labels.
Shared people are a random part of its own, so the sum of the predictions over *all* its rows,
times the share s of them who are shared, has the same expectation. So it minimises

    sum over all own rows of (log(1 + exp(h)) - r·h) - weights·t + l/2·|weights|²

with the logit h = base rate + sum of the weights of a row's categories, the rate r, and the sums t
of (y - r) divided by s. The problem is convex. Without any weights, the model predicts the base
rate: an intercept that is fitted as well would make every rare category look like a deviation from
the frequent ones.

**Regularisation** is chosen without labels other than in the aggregate, by thinning: with noise z
of the same covariance as that of the sums, t + z/2 and t - 2z are independent, so the model that is
fitted to one is tested on the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, logsumexp, softmax

from florist.common.label_aggregate.label_codes import class_rates

if TYPE_CHECKING:
    import numpy.typing as npt

    from florist.common.label_aggregate.coordinates import Coordinates
    from florist.common.label_aggregate.label_codes import LabelCodes

    Floats = npt.NDArray[np.float64]
    Rows = npt.NDArray[np.int32]

#: Rows of the own table on which the model is solved, and on which its regularisation is chosen: a
#: sample, if there are more.
SOLVED_ROWS, CHOICE_ROWS = 1 << 19, 1 << 16
#: Regularisation per shared person with a category: the inverse variance of a weight.
PENALTIES = (10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
#: How often the sums are thinned.
_THINNINGS = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregate:
    """What the passive party gets: noised sums, and what they mean."""

    coordinates: Coordinates
    codes: LabelCodes
    #: Sums of codes over shared people, with noise: (coordinates, outputs).
    sums: npt.NDArray[np.int64]
    #: The standard deviation of the noise on each sum.
    noise: float
    #: The noised number of the active party's people by class.
    class_counts: tuple[int, ...]
    #: The share of own rows who are shared, as estimated from the sizes of the union.
    shared: float

    @property
    def rates(self) -> tuple[float, ...]:
        """The frequency of each class."""
        return class_rates(self.class_counts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FirstModel:
    """Weights by coordinate; logits are relative to the base rates."""

    coordinates: Coordinates
    #: (coordinates, outputs): one output for two classes, else one for each class.
    weights: npt.NDArray[np.float32]
    rates: tuple[float, ...]
    #: The chosen regularisation.
    penalty: float

    def category_weights(self) -> npt.NDArray[np.float32]:
        """Return the weights of each category of each column: (categories, outputs)."""
        return self.weights[self.coordinates.of_category]

    def probabilities(self, categories: Rows) -> Floats:
        """Return the probability of each class for rows of the own table: (rows, classes)."""
        logits = self.weights[self.coordinates.of(categories)].sum(axis=1, dtype=np.float64)
        bases = np.log(self.rates)
        if len(self.rates) == 2:
            logits = np.concatenate((np.zeros_like(logits), logits), axis=1)
        found: Floats = softmax(bases + logits, axis=1)
        return found


def fit_first_model(
    aggregate: Aggregate, categories: Rows, random: np.random.RandomState
) -> FirstModel:
    """Solve the model, with the regularisation that predicts best.

    Args:
        aggregate: the noised sums.
        categories: of all own rows.
        random: for samples of rows and for thinning.
    """
    sample = _Problem.of(aggregate, categories, random, CHOICE_ROWS)
    penalty = _choose_penalty(aggregate, sample, random)
    return solve_first_model(aggregate, categories, random, penalty)


def solve_first_model(
    aggregate: Aggregate, categories: Rows, random: np.random.RandomState, penalty: float
) -> FirstModel:
    """Solve the model with a given regularisation; otherwise like `fit_first_model`."""
    problem = _Problem.of(aggregate, categories, random, SOLVED_ROWS)
    weights = problem.solve(problem.targets, penalty)
    return FirstModel(aggregate.coordinates, weights.astype(np.float32), aggregate.rates, penalty)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Problem:
    """The regression on a sample of own rows, scaled to the shared people among them."""

    #: One-hot features: (rows, coordinates), sparse.
    features: csr_array
    #: Sums of (y - rate) over as many shared people as there are rows: (coordinates, outputs).
    targets: Floats
    #: By which a sum over shared people is multiplied.
    factor: float
    rates: tuple[float, ...]

    @classmethod
    def of(
        cls,
        aggregate: Aggregate,
        categories: Rows,
        random: np.random.RandomState,
        most: int,
    ) -> _Problem:
        rows = np.arange(len(categories))
        if len(rows) > most:
            rows = np.sort(random.choice(len(rows), most, replace=False))
        coordinates = aggregate.coordinates.of(categories[rows])
        features = csr_array(
            (
                np.ones(coordinates.size),
                coordinates.ravel(),
                np.arange(0, coordinates.size + 1, coordinates.shape[1], dtype=np.int32),
            ),
            shape=(len(rows), aggregate.coordinates.count),
        )
        codes, rates = aggregate.codes, aggregate.rates
        factor = len(rows) / (aggregate.shared * len(categories))
        # From the centre of the codes to the rates.
        shift = np.array(codes.centres) / codes.scale - np.array(rates[1:])
        counts = features.sum(axis=0)
        targets = aggregate.sums / codes.scale * factor + counts[:, None] * shift
        return cls(features, _all_outputs(targets), factor, rates)

    def solve(
        self,
        targets: Floats,
        penalty: float,
        start: Floats | None = None,
        precision: float = 1e-8,
    ) -> Floats:
        """Return the weights (coordinates, outputs) for these targets, to a relative precision."""
        shape = targets.shape
        first = np.zeros(shape) if start is None else start
        strength = penalty * self.factor

        def loss_and_gradient(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            loss, sums = self.population(weights)
            loss += float((strength / 2 * weights - targets).ravel() @ flat)
            return loss, (sums - targets + strength * weights).ravel()

        from scipy.optimize import minimize  # noqa: PLC0415 - takes half a second

        found = minimize(
            loss_and_gradient,
            first.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 200, "ftol": precision},
        )
        weights: Floats = found.x.reshape(shape)
        return weights

    def population(self, weights: Floats) -> tuple[float, Floats]:
        """Return the loss without targets over all rows, and its gradient by coordinate."""
        rates = np.array(self.rates)
        logits = self.features @ weights
        if len(rates) == 2:
            base = np.log(rates[1] / rates[0])
            loss = (np.logaddexp(0, base + logits) - rates[1] * logits).sum()
            residuals = expit(base + logits) - rates[1]
        else:
            loss = (logsumexp(np.log(rates) + logits, axis=1) - logits @ rates).sum()
            residuals = softmax(np.log(rates) + logits, axis=1) - rates
        return float(loss), self.features.T @ residuals


def _choose_penalty(
    aggregate: Aggregate, problem: _Problem, random: np.random.RandomState
) -> float:
    """Return the penalty whose model predicts the other part of the thinned sums best.

    Of those that are not worse by more than a standard error, it is the largest: too little
    regularisation is worse than too much.
    """
    gains = np.zeros((_THINNINGS, len(PENALTIES)))
    for gain in gains:
        drawn = _sum_noise(aggregate, problem, random)
        # With both signs, most of the noise in the test cancels.
        for noise in (drawn, -drawn):
            fitted, tested = problem.targets + noise / 2, problem.targets - 2 * noise
            weights: Floats | None = None
            for number in reversed(range(len(PENALTIES))):  # the last one is solved fastest
                weights = problem.solve(fitted, PENALTIES[number], weights, precision=1e-6)
                gain[number] += (tested * weights).sum() - problem.population(weights)[0]
    best = gains.mean(axis=0).argmax()
    behind = gains[:, best, None] - gains
    error = behind.std(axis=0, ddof=1) / np.sqrt(_THINNINGS)
    return PENALTIES[int(np.flatnonzero(behind.mean(axis=0) <= error)[-1])]


def _sum_noise(aggregate: Aggregate, problem: _Problem, random: np.random.RandomState) -> Floats:
    """Draw noise with the covariance of the targets: of labels, of who is shared, and added."""
    codes, rates, factor = aggregate.codes, np.array(aggregate.rates), problem.factor
    rows = problem.features.shape[0]
    is_shared = random.uniform(size=rows) < aggregate.shared
    table = codes.table() / codes.scale
    labels = random.choice(len(rates), size=rows, p=rates)
    values = np.where(is_shared[:, None], table[labels], 0) - aggregate.shared * (rates @ table)
    # The sums are over all rows, of which these may be a sample; times the factor they would have
    # too much noise.
    sums = problem.features.T @ values * np.sqrt(factor / aggregate.shared)
    added = random.normal(size=sums.shape) * aggregate.noise / codes.scale * factor
    return _all_outputs(sums + added)


def _all_outputs(sums: Floats) -> Floats:
    """Return the sums of all outputs of the model: with several classes, also those of class 0."""
    if sums.shape[1] == 1:
        return sums
    return np.concatenate((-sums.sum(axis=1, keepdims=True), sums), axis=1)
