"""The discrete Gaussian distribution: noise on integer vectors, sampled exactly.

P(x) is proportional to exp(-x^2 / (2 variance)) on all integers. What it guarantees is computed in
`gaussian_accounting`; how it is sampled, without floating point, is in `exact_sampling`.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from fractions import Fraction

from florist.common.privacy.exact_sampling import RandomBelow, bernoulli_exp, discrete_laplace

#: Beyond this many deviations, `probability` treats weights as 0: they are below 10^-190.
_DEVIATIONS = 30


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """The distribution on the integers with P(x) proportional to exp(-x^2 / (2 variance)).

    Args:
        variance: the parameter sigma^2; positive, exact. The variance of a draw is never larger,
            and less than 10^-6 below it if sigma is at least 1.
        random_below: the source of randomness. Operating system entropy by default; `below` of a
            `SecretStream` if a resumed run must draw the same noise.
    """

    variance: Fraction
    random_below: RandomBelow = field(default=secrets.randbelow, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise ValueError("the variance must be positive")

    @property
    def deviation(self) -> float:
        """The parameter sigma."""
        return math.sqrt(self.variance)

    def probability(self, value: int) -> float:
        """Return the probability of a draw, rounded; takes time proportional to the deviation."""
        twice = float(2 * self.variance)
        last = math.ceil(_DEVIATIONS * self.deviation)
        tail = math.fsum(math.exp(-x * x / twice) for x in range(1, last + 1))
        return math.exp(-value * value / twice) / (1 + 2 * tail)

    def draw(self) -> int:
        """Draw a value with exactly the stated probabilities: Algorithm 3 of Canonne et al."""
        return self.draws(1)[0]

    def draws(self, count: int) -> list[int]:
        """Draw `count` independent values."""
        below = self.random_below
        above, under = self.variance.numerator, self.variance.denominator
        scale = math.isqrt(above // under) + 1  # floor(sigma) + 1
        laplace = Fraction(1, scale)
        # Accept y with probability exp(-(|y| - variance / scale)^2 / (2 variance)), in integers.
        step, denominator = under * scale, 2 * above * under * scale * scale
        drawn: list[int] = []
        while len(drawn) < count:
            value = discrete_laplace(laplace, below)
            if bernoulli_exp((abs(value) * step - above) ** 2, denominator, below):
                drawn.append(value)
        return drawn
