"""The discrete Gaussian: exact probabilities, and a sampler that has them."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florist.common.privacy import gaussian_noise
from florist.common.privacy.exact_sampling import SecretStream
from florist.common.privacy.gaussian_noise import GaussianNoise

variances = st.fractions(Fraction(1, 10), 50, max_denominator=100)


def slow_draw(variance: Fraction, rng: random.Random) -> int:
    """Algorithm 3 as the paper states it, in floating point."""
    scale = math.floor(math.sqrt(variance)) + 1
    while True:
        sign = rng.choice((-1, 1))
        size = math.floor(-math.log(1 - rng.random()) * scale)
        if sign < 0 and size == 0:
            continue
        exponent = (size - variance / scale) ** 2 / (2 * variance)
        if rng.random() < math.exp(-exponent):
            return sign * size


@settings(deadline=None)
@given(variances)
def test_probabilities_are_those_of_the_definition(variance: Fraction) -> None:
    noise = GaussianNoise(variance)
    values = range(-math.ceil(12 * noise.deviation) - 3, math.ceil(12 * noise.deviation) + 4)
    found = [noise.probability(x) for x in values]
    assert math.fsum(found) == pytest.approx(1, abs=1e-12)
    assert found == found[::-1]
    for x, chance in zip(values, found, strict=True):
        assert chance / noise.probability(0) == pytest.approx(
            math.exp(-x * x / (2 * float(variance)))
        )
    # The variance of a draw is at most the parameter, and nearly equal to it.
    true = math.fsum(x * x * p for x, p in zip(values, found, strict=True))
    assert true <= float(variance) + 1e-9
    if variance >= 1:
        assert true == pytest.approx(float(variance), abs=1e-6)


@pytest.mark.parametrize(
    "variance", [Fraction(1, 2), Fraction(1), Fraction(9, 4), Fraction(50), Fraction(1234567, 4096)]
)
def test_the_code_of_the_sampler_has_these_probabilities(
    variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Propose every value, and record with which probability the code accepts it.

    Proposals are independent, so the probability of a draw is proportional to that of its proposal
    times that of its acceptance. Proposals and trials have tests of their own (`exact_sampling`).
    """
    chances: dict[int, float] = {}
    scales = set()
    noise = GaussianNoise(variance)
    reach = math.ceil(9 * noise.deviation)
    proposed = 0

    def propose(epsilon: Fraction, _: object) -> int:
        scales.add(epsilon)
        chances[proposed] = math.exp(-float(epsilon) * abs(proposed))
        return proposed

    def trial(numerator: int, denominator: int, _: object) -> bool:
        chances[proposed] *= math.exp(-numerator / denominator)
        return True

    monkeypatch.setattr(gaussian_noise, "discrete_laplace", propose)
    monkeypatch.setattr(gaussian_noise, "bernoulli_exp", trial)
    for proposed in range(-reach, reach + 1):
        assert noise.draw() == proposed
    assert scales == {Fraction(1, math.floor(noise.deviation) + 1)}
    total = math.fsum(chances.values())
    for value, chance in chances.items():
        assert chance / total == pytest.approx(noise.probability(value), rel=1e-9)


def chi_square(drawn: list[int], noise: GaussianNoise) -> tuple[float, int]:
    """Return the statistic over all values that are expected at least five times, and their number.

    Rarer values count as one.
    """
    times = Counter(drawn)
    expected: dict[int, float] = {}
    for value in range(math.ceil(6 * noise.deviation)):
        chance = len(drawn) * noise.probability(value)
        if chance < 5:
            break
        expected |= {value: chance, -value: chance}
    rest = len(drawn) - sum(expected.values())
    statistic = math.fsum((times[x] - wanted) ** 2 / wanted for x, wanted in expected.items())
    outside = len(drawn) - sum(times[x] for x in expected)
    return statistic + (outside - rest) ** 2 / max(rest, 1), len(expected)


@pytest.mark.parametrize(
    "variance", [Fraction(1, 3), Fraction(1), Fraction(16), Fraction(1234567, 4096)]
)
@pytest.mark.parametrize("source", ["generator", "stream", "slow oracle"])
def test_the_sampler_has_the_stated_distribution(variance: Fraction, source: str) -> None:
    draws = 20_000
    noise = GaussianNoise(variance)
    if source == "slow oracle":
        rng = random.Random(3)
        drawn = [slow_draw(variance, rng) for _ in range(draws)]
    else:
        below = (
            random.Random(2).randrange
            if source == "generator"
            else SecretStream(bytes(range(32)), b"noise").below
        )
        drawn = GaussianNoise(variance, below).draws(draws)
    statistic, freedom = chi_square(drawn, noise)
    # Mean and variance of chi-square are n and 2n; four deviations above are improbable.
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_wide_noise() -> None:
    """A deviation of 704, as for 26 columns with codes of norm 100 at epsilon 4."""
    noise = GaussianNoise(Fraction(495_894), SecretStream(bytes(32), b"wide").below)
    drawn = noise.draws(20_000)
    error = noise.deviation / math.sqrt(len(drawn))
    assert abs(statistics.fmean(drawn)) < 4 * error
    assert statistics.pstdev(drawn) == pytest.approx(noise.deviation, abs=4 * error)
    inside = sum(abs(x) <= noise.deviation for x in drawn) / len(drawn)
    assert inside == pytest.approx(math.erf(math.sqrt(0.5)), abs=0.02)


def test_a_secret_determines_the_noise() -> None:
    def drawn(context: bytes) -> list[int]:
        return GaussianNoise(Fraction(100), SecretStream(bytes(32), context).below).draws(50)

    assert drawn(b"run 1") == drawn(b"run 1") != drawn(b"run 2")
    one_by_one = GaussianNoise(Fraction(100), SecretStream(bytes(32), b"run 1").below)
    assert [one_by_one.draw() for _ in range(50)] == drawn(b"run 1")


def test_operating_system_entropy_is_the_default() -> None:
    noise = GaussianNoise(Fraction(25))
    drawn = noise.draws(2000)
    assert abs(statistics.fmean(drawn)) < 8 * noise.deviation / math.sqrt(2000)
    assert drawn != noise.draws(2000)
    assert "random" not in repr(noise)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1)])
def test_invalid_variances(variance: Fraction) -> None:
    with pytest.raises(ValueError, match="variance"):
        GaussianNoise(variance)
