"""Noise on counts: the smallest radius, exact probabilities, a sampler that has them."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy.count_noise import CountNoise, exact_fraction, exp_bounds

epsilons = st.fractions(Fraction(1, 50), 5, max_denominator=100)
radii = st.integers(1, 60)


def weights(noise: CountNoise) -> list[float]:
    """Compute the probabilities from their definition, in floating point."""
    center = noise.pool_size // 2
    all_weights = [
        math.exp(-float(noise.epsilon) * abs(z - center)) for z in range(noise.pool_size + 1)
    ]
    return [weight / math.fsum(all_weights) for weight in all_weights]


@pytest.mark.parametrize(
    ("epsilon", "delta", "pool_size", "deviation"),
    [
        (1.0, 1e-9, 40, 1.4),
        (0.1, 1e-9, 356, 14),
        (0.01, 1e-9, 3086, 141),
        (Fraction(1, 52), Fraction(1, 52 * 10**9), 2084, 74),
    ],
)
def test_the_documented_pools(
    epsilon: float | Fraction, delta: float | Fraction, pool_size: int, deviation: float
) -> None:
    noise = CountNoise.for_guarantee(epsilon, delta)
    assert noise.pool_size == pool_size
    assert noise.deviation == pytest.approx(deviation, rel=0.04)
    assert noise.mean == pool_size // 2


def test_floats_stand_for_their_decimal_text() -> None:
    assert exact_fraction(0.1) == Fraction(1, 10)
    assert exact_fraction(1e-09) == Fraction(1, 10**9)
    assert CountNoise.for_guarantee(0.1, 0.5).epsilon == Fraction(1, 10)


@settings(deadline=None)
@given(epsilons, st.floats(1e-30, 0.99))
def test_the_radius_is_the_smallest(epsilon: Fraction, delta: float) -> None:
    noise = CountNoise.for_guarantee(epsilon, delta)
    limit = exact_fraction(delta)
    assert noise.delta_bounds[1] <= limit
    if noise.radius > 1:
        assert CountNoise(epsilon, noise.radius - 1).delta_bounds[0] > limit


@settings(deadline=None)
@given(epsilons, radii)
def test_probabilities_are_those_of_the_definition(epsilon: Fraction, radius: int) -> None:
    noise = CountNoise(epsilon, radius)
    values = range(-1, noise.pool_size + 2)
    assert [noise.probability(z) for z in values] == pytest.approx([0, *weights(noise), 0])
    bounds = [noise.probability_bounds(z) for z in values]
    assert sum(low for low, _ in bounds) <= 1 <= sum(high for _, high in bounds)
    assert all(high - low <= high * Fraction(1, 10**40) for low, high in bounds)
    mean = math.fsum(z * p for z, p in enumerate(weights(noise)))
    variance = math.fsum((z - mean) ** 2 * p for z, p in enumerate(weights(noise)))
    assert mean == pytest.approx(noise.mean)
    assert noise.deviation == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize("text", ["0", "-1", "-20.5", "-1/3", "-700", "1"])
def test_exponentials_have_certified_bounds(text: str) -> None:
    """The partial sums of the exponential series, in exact fractions, lie between the bounds."""
    exponent = Fraction(text)
    low, high = exp_bounds(exponent)
    halvings = 12
    small = exponent / 2**halvings
    term, total = Fraction(1), Fraction(1)
    for k in range(1, 60):
        term = Fraction((term * small / k).limit_denominator(10**120))
        total += term
    value = total
    for _ in range(halvings):
        value = (value * value).limit_denominator(10**420)
    assert low < value < high
    assert (high - low) / high < Fraction(1, 10**45)


@pytest.mark.parametrize(
    ("epsilon", "radius"), [(Fraction(1), 20), (Fraction(1, 10), 30), (Fraction(7, 3), 2)]
)
def test_the_sampler_has_the_stated_probabilities(epsilon: Fraction, radius: int) -> None:
    noise = CountNoise(epsilon, radius, random.Random(7).randrange)
    count = 20_000
    drawn = [noise.draw() for _ in range(count)]
    assert all(0 <= z <= noise.pool_size for z in drawn)
    expected = [count * noise.probability(z) for z in range(noise.pool_size + 1)]
    common = [z for z, times in enumerate(expected) if times >= 5]
    rare = count - sum(expected[z] for z in common)
    assert sum(drawn.count(z) for z in set(drawn) - set(common)) <= rare + 6 * math.sqrt(rare) + 1
    statistic = sum((drawn.count(z) - expected[z]) ** 2 / expected[z] for z in common)
    # Mean and variance of chi-square are n and 2n; four deviations above are improbable.
    assert statistic < len(common) + 4 * math.sqrt(2 * len(common))


def test_operating_system_entropy_is_the_default() -> None:
    noise = CountNoise.for_guarantee(1.0, 1e-9)
    drawn = [noise.draw() for _ in range(2000)]
    assert abs(sum(drawn) / 2000 - noise.mean) < 8 * noise.deviation / math.sqrt(2000)
    assert len(set(drawn)) > 3
    assert "random" not in repr(noise)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_invalid_guarantees(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        CountNoise.for_guarantee(1.0, delta)
    with pytest.raises(ValueError, match="epsilon"):
        CountNoise.for_guarantee(0.0, 0.5)
