"""Accounting of discrete Gaussian noise: against a reference, against the exact divergence."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy.count_noise import exact_fraction
from florist.common.privacy.gaussian_accounting import (
    COUNTS_SHARE,
    AggregateNoise,
    delta_of,
    log_bounds,
    rho_for,
    zcdp,
)
from florist.common.privacy.gaussian_noise import GaussianNoise

epsilons = st.fractions(Fraction(1, 100), 100, max_denominator=100)
deltas = st.sampled_from([1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 0.9])

#: (sigma, sensitivity, epsilon), delta by privacy loss distributions, delta by Renyi divergences.
#: Source: dp-accounting 0.6.0 (Google). The first is `from_gaussian_mechanism(sigma / sensitivity,
#: value_discretization_interval=1e-5)` (1e-4 in the last row) and `get_delta_for_epsilon`, nearly
#: the true delta of continuous noise; the second is `RdpAccountant` on a grid of orders.
DELTAS = [
    (("4", 1, "1"), 2.924272104854852e-06, 1.2333304237418497e-05),
    (("4", 1, "0.5"), 0.002708880218316049, 0.007160448261214881),
    (("10", 10, "4"), 4.712241200784219e-05, 0.00019593798374626967),
    (("1.5", 1, "4"), 7.30503648247997e-10, 4.296876674831787e-09),
    (("50", 5, "0.5"), 6.856582455837425e-09, 3.4525553797782416e-08),
    (("100", 20, "1"), 1.754633331895503e-08, 8.864604962883775e-08),
    (("0.5", 1, "10"), 9.94020281608862e-06, 4.872695833997802e-05),
    (("20", 100, "40"), 8.8232579200064e-09, 6.31200589706357e-08),
]

#: sigma of a sensitivity of 1, delta, epsilon by both methods of the same source.
EPSILONS = [
    (1.5, 1e-7, 3.4097867643145707, 3.62213918130003),
    (1.5, 1e-9, 3.9648278187724437, 4.163340622372694),
    (4.0, 1e-7, 1.1817459007911062, 1.261138496492313),
    (4.0, 1e-9, 1.395615714138625, 1.469777589316337),
    (0.5773502691896258, 1e-7, 10.045290387268865, 10.614643743344725),
    (0.5773502691896258, 1e-9, 11.457751266704992, 11.987435745703502),
]


@pytest.mark.parametrize(("case", "by_losses", "by_renyi"), DELTAS)
def test_delta_lies_between_two_references(
    case: tuple[str, int, str], by_losses: float, by_renyi: float
) -> None:
    sigma, sensitivity, epsilon = Fraction(case[0]), case[1], Fraction(case[2])
    delta = float(delta_of(zcdp(sensitivity**2, sigma**2), epsilon))
    # At least the true value; and at most the same formula on a grid of orders.
    assert by_losses < delta <= by_renyi * (1 + 1e-9)
    assert delta == pytest.approx(by_renyi, rel=0.01)


@pytest.mark.parametrize(("sigma", "delta", "by_losses", "by_renyi"), EPSILONS)
def test_epsilon_is_a_few_percent_above_the_true_one(
    sigma: float, delta: float, by_losses: float, by_renyi: float
) -> None:
    rho = zcdp(1, exact_fraction(sigma) ** 2)
    low, high = by_losses, 1.08 * by_losses
    assert delta_of(rho, low) > exact_fraction(delta) >= delta_of(rho, high)
    assert delta_of(rho, by_renyi * (1 + 1e-9)) <= exact_fraction(delta)
    # The noise that we add for this epsilon is that much larger than necessary.
    ours = math.sqrt(1 / (2 * rho_for(low, delta)))
    assert sigma < ours < 1.08 * sigma


def float_formula(rho: float, epsilon: float, alpha: float) -> float:
    """The formula of the paper for one alpha, in floating point: the oracle."""
    return (
        math.exp((alpha - 1) * (alpha * rho - epsilon))
        / (alpha - 1)
        * math.exp(alpha * math.log1p(-1 / alpha))
    )


@settings(deadline=None)
@given(st.floats(1e-4, 20), st.floats(0.01, 30))
def test_no_alpha_is_better(rho: float, epsilon: float) -> None:
    found = float(delta_of(rho, epsilon))
    tried = []
    for exponent in range(-120, 121):
        alpha = 1 + 10 ** (exponent / 20)
        if (alpha - 1) * (alpha * rho - epsilon) < 500:
            tried.append(float_formula(rho, epsilon, alpha))
    assert found <= min(1, *tried) * (1 + 1e-9)
    # The grid is fine enough to come close, where the best alpha is on it.
    if 1e-280 < found < 1 and min(tried) > 1e-5:
        assert found == pytest.approx(min(tried), rel=0.1)


def divergence(variance: Fraction, sensitivity: int, epsilon: float) -> float:
    """The smallest delta of one-dimensional noise, summed over all results."""
    noise = GaussianNoise(variance)
    reach = math.ceil(12 * noise.deviation) + sensitivity
    total = 1 / noise.probability(0)
    factor = math.exp(epsilon)

    def weight(x: int) -> float:
        return math.exp(-x * x / (2 * float(variance))) / total

    return math.fsum(
        max(0.0, weight(x) - factor * weight(x - sensitivity)) for x in range(-reach, reach + 1)
    )


@pytest.mark.parametrize(
    ("variance", "sensitivity"),
    [(Fraction(1, 2), 1), (Fraction(2), 1), (Fraction(9, 4), 2), (Fraction(100), 7)],
)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_the_exact_divergence_is_within_the_guarantee(
    variance: Fraction, sensitivity: int, epsilon: float
) -> None:
    true = divergence(variance, sensitivity, epsilon)
    assert true <= float(delta_of(zcdp(sensitivity**2, variance), epsilon))


def test_both_releases_together_are_within_the_guarantee() -> None:
    """A class count that moves by 1 and two sums that move by 3 and 4, in one sum over results."""
    epsilon, delta = 2.0, 1e-3
    noise = AggregateNoise.for_guarantee(epsilon, delta, 25)
    counts, sums = (
        GaussianNoise(variance) for variance in (noise.counts_variance, noise.sums_variance)
    )
    # The log-likelihood ratio of the two sums depends on their projection on (3, 4) alone.
    reach = math.ceil(7 * sums.deviation)
    chances = {x: sums.probability(x) for x in range(-reach - 4, reach + 5)}
    moved: dict[tuple[float, float], float] = {}
    for x, y in product(range(-reach, reach + 1), repeat=2):
        projection = 3 * x + 4 * y
        ratio = (25 - 2 * projection) / (2 * float(noise.sums_variance))
        key = (projection, ratio)
        moved[key] = moved.get(key, 0.0) + chances[x] * chances[y]
    reach = math.ceil(7 * counts.deviation)
    singles = [
        (counts.probability(z), (1 - 2 * z) / (2 * float(noise.counts_variance)))
        for z in range(-reach, reach + 1)
    ]
    # P - e^epsilon Q at a result is P (1 - e^(epsilon - log(P / Q))).
    true = math.fsum(
        chance * other * -math.expm1(epsilon - ratio - more)
        for (_, ratio), chance in moved.items()
        for other, more in singles
        if ratio + more > epsilon
    )
    assert 0 < true <= delta


@settings(deadline=None, max_examples=30)
@given(epsilons, deltas)
def test_rho_is_the_largest(epsilon: Fraction, delta: float) -> None:
    rho, limit = rho_for(epsilon, delta), exact_fraction(delta)
    assert delta_of(rho, epsilon) <= limit
    assert delta_of(rho * (1 + Fraction(1, 2**28)), epsilon) > limit


@settings(deadline=None, max_examples=30)
@given(epsilons, deltas, st.integers(1, 10**9))
def test_the_noise_of_an_aggregate(epsilon: Fraction, delta: float, squared: int) -> None:
    noise = AggregateNoise.for_guarantee(epsilon, delta, squared)
    assert delta_of(noise.rho, epsilon) <= exact_fraction(delta)
    # Little is lost by rounding, and the counts get their share.
    rho = rho_for(epsilon, delta)
    assert (1 - Fraction(1, 2**20)) * rho < noise.rho <= rho
    assert zcdp(1, noise.counts_variance) <= COUNTS_SHARE * rho
    assert noise.sums_deviation == pytest.approx(math.sqrt(noise.sums_variance))
    assert noise.counts_deviation == pytest.approx(math.sqrt(noise.counts_variance))
    # Small integers keep the sampler fast.
    for variance in (noise.counts_variance, noise.sums_variance):
        assert variance.denominator.bit_length() <= 40
        assert variance.numerator.bit_length() <= max(26, math.ceil(variance).bit_length())


def test_the_default_guarantee() -> None:
    """26 columns and codes of squared norm 10,000, at epsilon 4 and delta 10^-7."""
    noise = AggregateNoise.for_guarantee(4.0, 1e-7, 260_000)
    assert noise.sums_variance == Fraction(495_894)
    assert noise.sums_deviation == pytest.approx(704.2, abs=0.1)
    assert noise.counts_deviation == pytest.approx(10.96, abs=0.01)
    assert noise.rho < Fraction("0.26631396846")


@pytest.mark.parametrize(
    "text", ["1", "2", "1/3", "1000000", "1/1000000000", "999999999/1000000000"]
)
def test_logarithms_have_certified_bounds(text: str) -> None:
    number = Fraction(text)
    low, high = log_bounds(number)
    assert low < high
    assert high - low < Fraction(1, 10**45)
    assert float(low) == pytest.approx(math.log(number), abs=1e-15)


def test_edges() -> None:
    assert delta_of(0, 1.0) == 0
    assert delta_of(1000.0, 1.0) == 1
    assert 0 < delta_of(Fraction(1, 10**12), 100.0) < Fraction(1, 10**4000)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_invalid_guarantees(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        rho_for(1.0, delta)
    with pytest.raises(ValueError, match="epsilon"):
        rho_for(0.0, 0.5)
    with pytest.raises(ValueError, match="rho"):
        delta_of(-1.0, 1.0)
    with pytest.raises(ValueError, match="sensitivity"):
        AggregateNoise.for_guarantee(1.0, 0.5, 0)
    with pytest.raises(ValueError, match="variance"):
        zcdp(1, Fraction(0))
