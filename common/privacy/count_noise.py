"""Noise on counts with an exact guarantee of differential privacy, in integers only.

A draw `z` is on {0, ..., 2t}, with probability proportional to exp(-epsilon |z - t|). Adding it to
a count hides one person: exp(epsilon) bounds the ratio of the probabilities of every result, except
where only one of the two neighbouring counts can give the result, and that has probability P(0).
`for_guarantee` chooses the smallest `t` with P(0) <= delta.

Sampling compares integers only (see `exact_sampling`), so the probabilities are exactly those
above.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Self

from florist.common.privacy.exact_sampling import RandomBelow, discrete_laplace

#: A certified interval: (at most the value, at least the value).
Bounds = tuple[Fraction, Fraction]

#: Relative precision of the bounds, in decimal digits.
_DIGITS = 50


@dataclass(frozen=True, slots=True)
class CountNoise:
    """The distribution on {0, ..., 2 radius} with P(z) proportional to exp(-epsilon |z - radius|).

    Args:
        epsilon: positive, exact.
        radius: the distance from the mean to either end; at least 1.
        random_below: the source of randomness; operating system entropy unless a test replaces it.
    """

    epsilon: Fraction
    radius: int
    random_below: RandomBelow = field(default=secrets.randbelow, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.radius < 1:
            raise ValueError("epsilon must be positive and the radius at least 1")

    @classmethod
    def for_guarantee(cls, epsilon: float | Fraction, delta: float | Fraction) -> Self:
        """Return the smallest noise that makes a count (epsilon, delta)-differentially private.

        Args:
            epsilon: positive. A float stands for its decimal text: 0.1 is exactly 1/10.
            delta: above 0 and below 1; likewise.
        """
        exact, limit = exact_fraction(epsilon), exact_fraction(delta)
        if not 0 < limit < 1:
            raise ValueError("delta must be above 0 and below 1")
        low, high = 0, 1  # the radius is above `low` and at most `high`
        while cls(exact, high).delta_bounds[1] > limit:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if cls(exact, middle).delta_bounds[1] > limit:
                low = middle
            else:
                high = middle
        return cls(exact, high)

    @property
    def pool_size(self) -> int:
        """The largest draw, 2 `radius`: that many IDs are needed to represent any draw."""
        return 2 * self.radius

    @property
    def mean(self) -> int:
        """The mean of a draw."""
        return self.radius

    @property
    def deviation(self) -> float:
        """The standard deviation of one draw."""
        weights = [math.exp(-float(self.epsilon) * k) for k in range(self.radius + 1)]
        total = 2 * math.fsum(weights) - 1
        return math.sqrt(2 * math.fsum(k * k * w for k, w in enumerate(weights)) / total)

    @property
    def delta_bounds(self) -> Bounds:
        """Bounds on P(0), the probability that a draw does not hide one person."""
        return self.probability_bounds(0)

    def probability(self, value: int) -> float:
        """Return the probability of a draw, rounded."""
        low, high = self.probability_bounds(value)
        return float((low + high) / 2)

    def probability_bounds(self, value: int) -> Bounds:
        """Return bounds on the probability of a draw, with a relative distance below 10^-40."""
        if not 0 <= value <= self.pool_size:
            return Fraction(0), Fraction(0)
        weight = exp_bounds(-self.epsilon * abs(value - self.radius))
        q, last = exp_bounds(-self.epsilon), exp_bounds(-self.epsilon * (self.radius + 1))
        # The sum of all weights is (1 + q - 2 q^(radius + 1)) / (1 - q) with q = exp(-epsilon).
        smallest = (1 + q[0] - 2 * last[1]) / (1 - q[0])
        largest = (1 + q[1] - 2 * last[0]) / (1 - q[1])
        return weight[0] / largest, weight[1] / smallest

    def draw(self) -> int:
        """Draw a value, with exactly the stated probabilities."""
        while abs(value := discrete_laplace(self.epsilon, self.random_below)) > self.radius:
            pass
        return self.radius + value


def exact_fraction(number: float | Fraction) -> Fraction:
    """Return the number that the decimal text of a float states: 0.1 becomes exactly 1/10."""
    return number if isinstance(number, Fraction) else Fraction(repr(number))


def exp_bounds(exponent: Fraction) -> Bounds:
    """Return bounds on exp(`exponent`), certified: `Decimal.exp` rounds correctly."""
    down = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    up = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    parts = Decimal(exponent.numerator), Decimal(exponent.denominator)
    low = down.next_minus(down.exp(down.divide(*parts)))
    high = up.next_plus(up.exp(up.divide(*parts)))
    return max(Fraction(low), Fraction(0)), Fraction(high)
