"""What discrete Gaussian noise guarantees, by zero-concentrated differential privacy (zCDP).

All results are those of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
Privacy" (arXiv 2004.00010) and of Bun and Steinke (arXiv 1605.02065):

* independent discrete Gaussian noise of variance s on each entry of an integer vector, which one
  person changes by at most D in L2 norm, is rho-zCDP with rho = D^2 / (2 s);
* releases add up: rho_1 and rho_2 make rho_1 + rho_2, also if the second depends on the first;
* rho-zCDP implies (epsilon, delta)-differential privacy for each alpha > 1 with

      delta = exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha

Every alpha gives a valid delta, so the search for the best one need not be exact. The value itself
is computed in decimal arithmetic with 50 digits and rounded up in each step: no floating-point
error can make a guarantee look better than it is. The results are the same on all machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import Self

from florist.common.privacy.count_noise import Bounds, exact_fraction, exp_bounds

#: The part of rho that the class counts get. They are few and large, so little suffices.
COUNTS_SHARE = Fraction(1, 64)

#: Decimal digits of certified values, and of the search for the best alpha.
_DIGITS, _SEARCH_DIGITS = 50, 30
#: Bits to which alpha - 1, rho and variances are determined.
_ALPHA_BITS, _RHO_BITS, _VARIANCE_BITS = 40, 30, 24
#: Smaller logarithms of delta are treated as this one.
_SMALLEST_LOG = Fraction(-10_000)


def zcdp(squared_sensitivity: int, variance: Fraction) -> Fraction:
    """Return rho of discrete Gaussian noise with this variance, exactly.

    Args:
        squared_sensitivity: the square of the L2 norm by which one person changes the vector.
        variance: the parameter sigma^2 of the noise on each entry.
    """
    if squared_sensitivity < 1 or variance <= 0:
        raise ValueError("sensitivity and variance must be positive")
    return Fraction(squared_sensitivity) / (2 * variance)


def delta_of(rho: float | Fraction, epsilon: float | Fraction) -> Fraction:
    """Return a delta with which rho-zCDP implies (epsilon, delta)-differential privacy.

    It is certified: at least the infimum over alpha, and larger by a relative 10^-20 at most,
    except that it is never below exp(-10,000).

    Args:
        rho: at least 0. A float stands for its decimal text, as for `epsilon`.
        epsilon: positive.
    """
    rho, epsilon = exact_fraction(rho), exact_fraction(epsilon)
    if rho < 0 or epsilon <= 0:
        raise ValueError("rho must be at least 0, and epsilon positive")
    if rho == 0:
        return Fraction(0)
    order = _best_order(rho, epsilon)  # alpha - 1
    alpha = 1 + order
    log = (
        order * (alpha * rho - epsilon)
        - log_bounds(order)[0]
        + alpha * log_bounds(order / alpha)[1]
    )
    return min(exp_bounds(max(log, _SMALLEST_LOG))[1], Fraction(1)) if log < 0 else Fraction(1)


def rho_for(epsilon: float | Fraction, delta: float | Fraction) -> Fraction:
    """Return the largest rho that guarantees (epsilon, delta), rounded down.

    `delta_of(rho, epsilon) <= delta` holds with certainty. The safety margin is the rounding: a rho
    that is larger by a relative 2^-29 would not pass this test.

    Args:
        epsilon: positive. A float stands for its decimal text: 0.1 is exactly 1/10.
        delta: above 0 and below 1; likewise.
    """
    epsilon, delta = exact_fraction(epsilon), exact_fraction(delta)
    if not 0 < delta < 1:
        raise ValueError("delta must be above 0 and below 1")
    rho = Fraction(1)
    while delta_of(rho, epsilon) > delta:
        rho /= 2
    while delta_of(2 * rho, epsilon) <= delta:
        rho *= 2
    step = rho
    for _ in range(_RHO_BITS):
        step /= 2
        if delta_of(rho + step, epsilon) <= delta:
            rho += step
    return rho


def log_bounds(number: Fraction) -> Bounds:
    """Return bounds on the natural logarithm, certified: `Decimal.ln` rounds correctly."""
    down = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    up = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    parts = Decimal(number.numerator), Decimal(number.denominator)
    low = down.next_minus(down.ln(down.divide(*parts)))
    high = up.next_plus(up.ln(up.divide(*parts)))
    return Fraction(low), Fraction(high)


@dataclass(frozen=True, slots=True)
class AggregateNoise:
    """The noise of a label aggregate: on the class counts, and then on the sums.

    Attributes:
        counts_variance: sigma^2 of the noise on each class count; one person changes one by 1.
        sums_variance: sigma^2 of the noise on each sum.
        squared_sensitivity: the square of the L2 norm by which one person changes all sums.
    """

    counts_variance: Fraction
    sums_variance: Fraction
    squared_sensitivity: int

    @classmethod
    def for_guarantee(
        cls, epsilon: float | Fraction, delta: float | Fraction, squared_sensitivity: int
    ) -> Self:
        """Return the noise with which both releases together are (epsilon, delta)-private.

        Variances are rounded up to 24 bits, which keeps the integers of the sampler small.

        Args:
            epsilon: positive. A float stands for its decimal text.
            delta: above 0 and below 1; likewise.
            squared_sensitivity: at least 1; see the class.
        """
        if squared_sensitivity < 1:
            raise ValueError("the squared sensitivity must be at least 1")
        rho = rho_for(epsilon, delta)
        counts, sums = COUNTS_SHARE * rho, (1 - COUNTS_SHARE) * rho
        return cls(
            _rounded_up(1 / (2 * counts)),
            _rounded_up(squared_sensitivity / (2 * sums)),
            squared_sensitivity,
        )

    @property
    def rho(self) -> Fraction:
        """What both releases cost together in zCDP, exactly."""
        return zcdp(1, self.counts_variance) + zcdp(self.squared_sensitivity, self.sums_variance)

    @property
    def counts_deviation(self) -> float:
        """The parameter sigma of the noise on a class count."""
        return math.sqrt(self.counts_variance)

    @property
    def sums_deviation(self) -> float:
        """The parameter sigma of the noise on a sum."""
        return math.sqrt(self.sums_variance)


def _best_order(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return alpha - 1 for nearly the smallest delta.

    With o = alpha - 1, the derivative of log delta by alpha is (2 o + 1) rho - epsilon +
    ln(o / (o + 1)). It increases with o from minus infinity to infinity, so it has one zero.
    """
    with localcontext(Context(prec=_SEARCH_DIGITS)):
        slope = Decimal(rho.numerator) / rho.denominator
        bound = Decimal(epsilon.numerator) / epsilon.denominator

        def too_large(order: Decimal) -> bool:
            return (2 * order + 1) * slope - bound + (order / (order + 1)).ln() > 0

        low = Decimal(1)
        while too_large(low):
            low /= 2
        while not too_large(2 * low):
            low *= 2
        step = low
        for _ in range(_ALPHA_BITS):
            step /= 2
            if not too_large(low + step):
                low += step
        return Fraction(low)


def _rounded_up(number: Fraction) -> Fraction:
    """Round up to a number with few bits, by a relative 2^-23 at most; above 2^24 to an integer."""
    bits = max(_VARIANCE_BITS - _exponent(number), 0)
    return Fraction(math.ceil(number * 2**bits), 2**bits)


def _exponent(number: Fraction) -> int:
    """Return e with 2^(e - 2) < number < 2^(e + 1)."""
    return number.numerator.bit_length() - number.denominator.bit_length() + 1
